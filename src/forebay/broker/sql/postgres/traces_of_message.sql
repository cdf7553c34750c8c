-- What happened to a message, in order.
SELECT p.queue_id, t.partition_id, t.transaction_id, t.group_name, t.event_type, t.names, t.data, t.created_us
FROM forebay.traces t
JOIN forebay.partitions p ON p.partition_id = t.partition_id
JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
WHERE t.partition_id = %(partition_id)b::bigint AND t.transaction_id = %(transaction_id)b::text
ORDER BY t.trace_event_id
