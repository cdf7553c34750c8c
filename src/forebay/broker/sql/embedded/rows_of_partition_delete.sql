-- What a table has of a partition that is removed.
DELETE FROM {table} WHERE partition_id = ?
