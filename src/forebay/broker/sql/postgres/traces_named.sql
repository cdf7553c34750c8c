-- Events under one name, the newest first, and how many there are.
SELECT p.queue_id, t.partition_id, t.transaction_id, t.group_name, t.event_type, t.names, t.data, t.created_us,
    count(*) OVER ()
FROM forebay.traces t
JOIN forebay.partitions p ON p.partition_id = t.partition_id
JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
WHERE t.names @> ARRAY[%(name)b::text]
ORDER BY t.trace_event_id DESC LIMIT %(limit)b::bigint OFFSET %(offset)b::bigint
