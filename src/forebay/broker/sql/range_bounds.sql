-- What can be read of a queue: its number, the seqs, its bytes, what retention has removed, and where a time is in it.
SELECT q.queue_id,
    coalesce((SELECT m.seq FROM forebay.messages m WHERE m.queue_id = q.queue_id ORDER BY m.seq LIMIT 1), q.next_seq),
    q.next_seq, q.size_bytes, q.removed,
    greatest(q.gone_seq, (SELECT max(p.removed_seq) FROM forebay.partitions p WHERE p.queue_id = q.queue_id)),
    CASE WHEN %(time_us)b::bigint IS NOT NULL THEN forebay.first_seq_since(q.queue_id, %(time_us)b::bigint) END
FROM forebay.queues q WHERE q.name = %(queue)b::text
