-- Forget the group's deliveries; their leases end. The next pop finds its partitions anew, from `start_seq` on.
WITH locked AS (
    SELECT group_id, partition_id FROM forebay.deliveries WHERE group_id = %(group_id)b::bigint
    ORDER BY group_id, partition_id FOR UPDATE
), gone AS (
    DELETE FROM forebay.deliveries d USING locked
    WHERE d.group_id = locked.group_id AND d.partition_id = locked.partition_id
)
UPDATE forebay.groups SET start_seq = %(start_seq)b::bigint, looked_seq = %(start_seq)b::bigint
WHERE group_id = %(group_id)b::bigint
