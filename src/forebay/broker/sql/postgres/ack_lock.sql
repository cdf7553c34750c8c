-- Lock the deliveries that acks are for.
SELECT d.partition_id, g.name, d.group_id, d.state, d.cursor_seq, q.name, q.options, p.name,
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM unnest(%(partition_ids)b::bigint[], %(groups)b::text[]) AS given (partition_id, group_name)
JOIN forebay.partitions p ON p.partition_id = given.partition_id
JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = given.group_name
JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id
ORDER BY d.group_id, d.partition_id
FOR UPDATE OF d
