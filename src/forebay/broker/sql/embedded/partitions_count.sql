-- How many partitions a queue has, all or of a name.
SELECT count(*) FROM partitions WHERE queue_id = :queue_id AND (:name IS NULL OR name = :name)
