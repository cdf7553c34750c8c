-- What a write of an epoch has committed, by queue.
SELECT queue, rows, size, checksum, request, messages, duplicates, first_seq
FROM queue_commits
WHERE producer = ? AND epoch = ? AND "write" = ?
