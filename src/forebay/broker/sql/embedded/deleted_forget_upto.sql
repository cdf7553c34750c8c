-- Messages up to a seq that were deleted by themselves.
DELETE FROM deleted_messages WHERE partition_id = ? AND seq <= ?
