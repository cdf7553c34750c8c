-- The queue of a partition.
SELECT queue_id FROM partitions WHERE id = ?
