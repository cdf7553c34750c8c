-- The furthest that a group stands in some partitions.
SELECT max(cursor_seq) FROM states WHERE group_id = ? AND partition_id BETWEEN ? AND ?
