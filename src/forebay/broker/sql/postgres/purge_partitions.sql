-- Remove partitions that nothing refers to any more.
DELETE FROM forebay.partitions WHERE partition_id = ANY (%(partition_ids)b::bigint[])
