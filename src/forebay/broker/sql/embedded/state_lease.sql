-- The last lease of a group on a partition.
SELECT lease_id FROM states WHERE group_id = ? AND partition_id = ?
