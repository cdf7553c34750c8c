-- Messages of a queue from a seq on that were deleted by themselves.
SELECT d.seq
FROM deleted_messages d
JOIN partitions p ON p.id = d.partition_id
WHERE p.queue_id = ? AND d.seq >= ?
