-- The partitions of a push as they stand, and the time now that the queues are locked.
SELECT wanted.queue, wanted.name, p.partition_id, p.last_position, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM unnest(%(queues)b::text[], %(names)b::text[]) AS wanted (queue, name)
LEFT JOIN (forebay.queues q JOIN forebay.partitions p ON p.queue_id = q.queue_id)
    ON q.name = wanted.queue AND p.name = wanted.name
