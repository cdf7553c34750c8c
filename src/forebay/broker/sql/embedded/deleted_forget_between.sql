-- Messages deleted by themselves that cannot be read any more in any case.
DELETE FROM deleted_messages WHERE partition_id = ? AND seq BETWEEN ? AND ?
