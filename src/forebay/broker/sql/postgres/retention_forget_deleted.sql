-- Messages that were deleted one by one need not be remembered once their neighbours are removed.
DELETE FROM forebay.deleted_messages x
USING forebay.partitions p
WHERE p.partition_id = ANY (%(partition_ids)b::bigint[]) AND x.partition_id = p.partition_id AND x.seq <= p.removed_seq
