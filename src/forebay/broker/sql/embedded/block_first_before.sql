-- How many messages came before the first block of a partition.
SELECT before FROM blocks WHERE partition_id = ? ORDER BY first_seq LIMIT 1
