-- How many partitions a queue has, all or of a name.
SELECT count(*) FROM partitions WHERE queue_id = ?1 AND (?2 IS NULL OR name = ?2)
