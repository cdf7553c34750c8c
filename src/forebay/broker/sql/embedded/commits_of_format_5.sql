-- Epochs that a Forebay of format 5 has committed, one row for each queue that got messages. What it answered is JSON:
-- whether it was a repeat, the messages, the duplicates, and by queue the first and the last seq.
INSERT OR IGNORE INTO queue_commits
    (producer, epoch, "write", queue, rows, size, checksum, request, messages, duplicates, first_seq, created_us)
SELECT c.producer, c.epoch, '', coalesce(q.key, ''), NULL, NULL, NULL, '',
    coalesce(json_extract(q.value, '$[1]') - json_extract(q.value, '$[0]') + 1, 0),
    json_extract(CAST(c.outcome AS TEXT), '$[2]'), coalesce(json_extract(q.value, '$[0]'), 0), c.created_us
FROM stage_commits c LEFT JOIN json_each(CAST(c.outcome AS TEXT), '$[3]') q
