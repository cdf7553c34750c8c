-- How many bytes the payloads of messages have.
SELECT m.seq, octet_length(m.payload)
FROM forebay.messages m
WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = ANY (%(seqs)b::bigint[])
