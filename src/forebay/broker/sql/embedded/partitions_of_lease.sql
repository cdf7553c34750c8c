-- Partitions that a lease covers, or covered.
SELECT partition_id FROM states WHERE lease_id = ? AND group_id = ?
