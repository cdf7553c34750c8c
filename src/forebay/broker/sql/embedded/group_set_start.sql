-- Where a group begins in partitions that it has not touched.
UPDATE groups SET start_seq = ? WHERE id = ?
