-- How a group stands in a partition.
SELECT state FROM states WHERE group_id = ? AND partition_id = ?
