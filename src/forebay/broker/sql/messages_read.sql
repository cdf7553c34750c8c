-- Messages of a queue from a seq on.
SELECT m.seq, p.name, p.partition_id, m.transaction_id, m.trace_id, m.created_us, m.payload, m.headers, m.is_binary
FROM forebay.messages m JOIN forebay.partitions p ON p.partition_id = m.partition_id
WHERE m.queue_id = %(queue_id)b::bigint AND m.seq >= %(from_seq)b::bigint
ORDER BY m.seq LIMIT %(limit)b::bigint
