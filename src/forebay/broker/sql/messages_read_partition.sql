-- Messages of one partition from a seq on.
SELECT m.seq, p.name, p.partition_id, m.transaction_id, m.trace_id, m.created_us, m.payload, m.headers, m.is_binary
FROM forebay.partitions p JOIN forebay.messages m ON m.partition_id = p.partition_id
WHERE p.queue_id = %(queue_id)b::bigint AND p.name = %(partition)b::text AND m.seq >= %(from_seq)b::bigint
ORDER BY m.seq LIMIT %(limit)b::bigint
