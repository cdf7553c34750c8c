-- How many messages of a partition are kept.
SELECT pushed - removed FROM partitions WHERE id = ?
