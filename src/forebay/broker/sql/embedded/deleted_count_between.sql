-- How many messages of a partition were deleted by themselves, between two seqs.
SELECT count(*) FROM deleted_messages WHERE partition_id = ? AND seq BETWEEN ? AND ?
