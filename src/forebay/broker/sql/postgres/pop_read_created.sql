-- When messages were accepted.
SELECT m.seq, m.created_us
FROM forebay.messages m
WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = ANY (%(seqs)b::bigint[])
