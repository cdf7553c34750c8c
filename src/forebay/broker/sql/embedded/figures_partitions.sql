-- How many partitions a queue has.
SELECT count(*) FROM partitions WHERE queue_id = :of_queue_id
