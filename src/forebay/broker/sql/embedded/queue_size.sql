-- Bytes of payloads that a queue keeps.
SELECT coalesce(sum(size), 0) FROM partitions WHERE queue_id = :queue_id
