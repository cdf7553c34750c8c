-- Keep messages as dead letters, with a copy of what they held: retention may remove the original.
INSERT INTO forebay.dead_letters (queue_id, partition_id, group_name, seq, attempts, reason, failed_us, created_us,
    is_binary, transaction_id, trace_id, headers, payload)
SELECT m.queue_id, m.partition_id, given.group_name, m.seq, given.attempts, given.reason, %(now_us)b::bigint,
    m.created_us, m.is_binary, m.transaction_id, m.trace_id, m.headers, m.payload
FROM unnest(%(partition_ids)b::bigint[], %(groups)b::text[], %(seqs)b::bigint[], %(attempts)b::integer[],
    %(reasons)b::text[]) WITH ORDINALITY AS given (partition_id, group_name, seq, attempts, reason, place)
JOIN forebay.messages m ON m.partition_id = given.partition_id AND m.seq = given.seq
ORDER BY given.place
