-- Find the partitions that got messages since the group last looked, and make those due that were not planned.
-- The transaction that has the group's row looks; the others wait for it, and then find what it found in `deliveries`.
WITH held AS (
    SELECT group_id, queue_id, start_seq, looked_seq FROM forebay.groups
    WHERE group_id = %(group_id)b::bigint FOR NO KEY UPDATE
), news AS (
    SELECT p.partition_id, p.last_seq FROM held, LATERAL (
        -- By the stretch of 1024 seqs, which the index knows. Whole ones: so all that is left out is behind what was found.
        SELECT partition_id, last_seq FROM forebay.partitions
        WHERE queue_id = held.queue_id AND last_stretch >= held.looked_seq / 1024 AND last_seq > held.looked_seq
        ORDER BY last_stretch FETCH FIRST 1000 ROWS WITH TIES
    ) p
), planned AS (
    INSERT INTO forebay.deliveries AS d (group_id, partition_id, state, cursor_seq, seen_seq, seen_position, open_count,
        lease_id, due_us)
    SELECT held.group_id, news.partition_id, ''::bytea, held.start_seq, held.start_seq,
        CASE held.start_seq WHEN 0 THEN 0 ELSE forebay.position_at(news.partition_id, held.start_seq) END, 0, '',
        coalesce(%(now_us)b::bigint, forebay.now_us())
    FROM held, news
    ORDER BY news.partition_id
    ON CONFLICT (group_id, partition_id) DO UPDATE SET due_us = excluded.due_us
        WHERE d.due_us IS NULL
    RETURNING 1
)
UPDATE forebay.groups g SET looked_seq = greatest(g.looked_seq, (SELECT max(last_seq) FROM news))
FROM held
WHERE g.group_id = held.group_id AND EXISTS (SELECT FROM news)
RETURNING (SELECT count(*) FROM news)
