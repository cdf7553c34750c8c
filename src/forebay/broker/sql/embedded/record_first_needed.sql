-- The first record of a queue that holds something which is kept.
SELECT min(b.record_seq)
FROM blocks b
JOIN partitions p ON p.id = b.partition_id
WHERE p.queue_id = :queue_id AND b.position >= 0
