-- Lock the group's delivery of one partition.
SELECT d.partition_id, d.state, d.cursor_seq, p.name, p.newest_us, p.removed_seq,
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.groups g
JOIN forebay.partitions p ON p.queue_id = g.queue_id AND p.name = %(partition)b::text
JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id
WHERE g.group_id = %(group_id)b::bigint
FOR UPDATE OF d
