-- How many messages of a partition behind a seq were deleted by themselves.
SELECT count(*) FROM deleted_messages WHERE partition_id = ? AND seq > ?
