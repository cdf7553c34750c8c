-- Messages of a queue between two seqs that were deleted by themselves.
SELECT d.seq
FROM partitions p
JOIN deleted_messages d ON d.partition_id = p.id
WHERE p.queue_id = :queue_id AND d.seq BETWEEN :first_seq AND :last_seq
