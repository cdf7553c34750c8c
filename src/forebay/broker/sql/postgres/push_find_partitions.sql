-- The partitions of a push as they stand, and the time now that the queues are locked: one look into the index each.
SELECT wanted.queue, wanted.name, found.partition_id, found.last_position, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM unnest(%(queues)b::text[], %(names)b::text[]) AS wanted (queue, name)
LEFT JOIN LATERAL (
    SELECT p.partition_id, p.last_position
    FROM forebay.queues q JOIN forebay.partitions p ON p.queue_id = q.queue_id
    WHERE q.name = wanted.queue AND p.name = wanted.name
    LIMIT 1
) found ON true
