-- Of each queue, or of one: partitions, messages ever and removed, the newest message, bytes.
SELECT queue_id, count(*), sum(pushed), sum(removed), max(newest_us), sum(size)
FROM partitions
WHERE :queue_id IS NULL OR queue_id = :queue_id
GROUP BY queue_id
