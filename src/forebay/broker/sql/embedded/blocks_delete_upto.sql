-- Blocks of a partition up to a seq.
DELETE FROM blocks WHERE partition_id = ? AND last_seq <= ?
