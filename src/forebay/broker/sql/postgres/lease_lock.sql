-- Lock the deliveries under one lease.
SELECT d.group_id, d.partition_id, q.name, p.name, q.options, d.state, d.cursor_seq,
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.deliveries d
JOIN forebay.groups g ON g.group_id = d.group_id
JOIN forebay.queues q ON q.queue_id = g.queue_id AND q.name IS NOT NULL
JOIN forebay.partitions p ON p.partition_id = d.partition_id
WHERE d.lease_id = %(lease_id)b::text AND d.lease_id <> ''
ORDER BY d.group_id, d.partition_id
FOR UPDATE OF d
