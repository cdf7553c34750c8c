-- Queues of which removed partitions are remembered.
SELECT DISTINCT queue_id FROM removed_partitions
