-- Remove dead letters that match, the oldest first, a bounded number at a time, and return what they held.
WITH chosen AS (
    SELECT l.letter_id, q.name AS queue, p.name AS partition
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
    ORDER BY l.letter_id LIMIT %(limit)b::bigint
    FOR UPDATE OF l
), gone AS (
    DELETE FROM forebay.dead_letters l USING chosen WHERE l.letter_id = chosen.letter_id
    RETURNING l.letter_id, chosen.queue, chosen.partition, l.payload, l.trace_id, l.headers, l.is_binary
)
SELECT queue, partition, payload, trace_id, headers, is_binary FROM gone ORDER BY letter_id
