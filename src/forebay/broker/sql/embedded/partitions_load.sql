-- Partitions of a queue, with their numbers.
SELECT name, id FROM partitions WHERE queue_id = ?
