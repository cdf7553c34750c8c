-- Messages by their seqs.
SELECT m.seq, m.transaction_id, m.created_us, m.trace_id, m.payload, m.headers, m.is_binary
FROM forebay.messages m
WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = ANY (%(seqs)b::bigint[])
