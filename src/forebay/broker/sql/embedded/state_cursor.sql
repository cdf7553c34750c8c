-- Where a group's cursor stands in a partition.
SELECT cursor_seq FROM states WHERE group_id = ? AND partition_id = ?
