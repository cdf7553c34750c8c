-- A message by its id. Producers' own ids are indexed; for one that was minted the partition is searched.
SELECT m.seq, p.name, p.partition_id, m.transaction_id, m.trace_id, m.created_us, m.payload, m.headers, m.is_binary,
    q.queue_id, q.name
FROM forebay.messages m
JOIN forebay.partitions p ON p.partition_id = m.partition_id
JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
WHERE m.partition_id = %(partition_id)b::bigint AND m.transaction_id = %(transaction_id)b::text
    AND m.is_minted = %(is_minted)b::boolean
ORDER BY m.seq LIMIT 1
