-- Partitions of a queue, a page by name.
SELECT name, id, pushed - removed, last_seq, newest_us
FROM partitions
WHERE queue_id = ?
ORDER BY name
LIMIT ? OFFSET ?
