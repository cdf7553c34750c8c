-- How many dead letters match.
SELECT count(*)
FROM forebay.dead_letters l
JOIN forebay.partitions p ON p.partition_id = l.partition_id
JOIN forebay.queues q ON q.queue_id = l.queue_id AND q.name IS NOT NULL
WHERE
    (%(queue)b::text IS NULL OR q.name = %(queue)b::text)
    AND (%(group)b::text IS NULL OR l.group_name = %(group)b::text)
    AND (%(partition)b::text IS NULL OR p.name = %(partition)b::text)
    AND (%(from_us)b::bigint IS NULL OR l.failed_us >= %(from_us)b::bigint)
    AND (%(to_us)b::bigint IS NULL OR l.failed_us <= %(to_us)b::bigint)
    AND (%(transaction_id)b::text IS NULL OR l.transaction_id = %(transaction_id)b::text)
