-- Remove a partition.
DELETE FROM partitions WHERE id = ?
