-- Some partitions of a queue.
SELECT id FROM partitions WHERE queue_id = ? LIMIT ?
