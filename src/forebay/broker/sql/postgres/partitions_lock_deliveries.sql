-- Lock all deliveries of some partitions.
SELECT group_id FROM forebay.deliveries WHERE partition_id = ANY (%(partition_ids)b::bigint[])
ORDER BY group_id, partition_id FOR UPDATE
