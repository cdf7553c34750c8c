-- Messages of a partition behind a seq that were deleted by themselves.
SELECT seq FROM deleted_messages WHERE partition_id = ? AND seq > ?
