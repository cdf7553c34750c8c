-- Ids of a partition up to a seq.
DELETE FROM transaction_ids WHERE partition_id = ? AND seq <= ?
