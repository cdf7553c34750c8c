-- What can be read of a queue: its number, when it was made, the seqs, its bytes, what retention has removed (of some
-- partitions, or all), and where a time is in it. Of partitions that are gone it is not known which they were.
SELECT q.queue_id, q.created_us,
    coalesce((SELECT m.seq FROM forebay.messages m WHERE m.queue_id = q.queue_id ORDER BY m.seq LIMIT 1), q.next_seq),
    q.next_seq, q.size_bytes, q.removed,
    greatest(q.gone_seq, (
        SELECT max(p.removed_seq) FROM forebay.partitions p
        WHERE p.queue_id = q.queue_id
            AND (%(partitions)b::text[] IS NULL OR p.name = ANY (%(partitions)b::text[]))
    )),
    CASE WHEN %(time_us)b::bigint IS NOT NULL THEN forebay.first_seq_since(q.queue_id, %(time_us)b::bigint) END
FROM forebay.queues q WHERE q.name = %(queue)b::text
