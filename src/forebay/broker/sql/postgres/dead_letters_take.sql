-- Remove the next dead letters that match, the oldest first, and return what they held, or only which they were.
WITH chosen AS (
    SELECT l.letter_id, q.name AS queue, p.name AS partition, octet_length(l.payload) AS size_bytes
    FROM forebay.dead_letters l
    JOIN forebay.partitions p ON p.partition_id = l.partition_id
    JOIN forebay.queues q ON q.queue_id = l.queue_id AND q.name IS NOT NULL
    WHERE
        l.letter_id > %(after_id)b::bigint AND l.letter_id <= %(last_id)b::bigint
        AND (%(queue)b::text IS NULL OR q.name = %(queue)b::text)
        AND (%(group)b::text IS NULL OR l.group_name = %(group)b::text)
        AND (%(partition)b::text IS NULL OR p.name = %(partition)b::text)
        AND (%(from_us)b::bigint IS NULL OR l.failed_us >= %(from_us)b::bigint)
        AND (%(to_us)b::bigint IS NULL OR l.failed_us <= %(to_us)b::bigint)
        AND (%(transaction_id)b::text IS NULL OR l.transaction_id = %(transaction_id)b::text)
    ORDER BY l.letter_id LIMIT %(limit)b::bigint
    FOR UPDATE OF l
), counted AS (
    SELECT *, sum(size_bytes) OVER (ORDER BY letter_id ROWS UNBOUNDED PRECEDING) - size_bytes AS bytes_before
    FROM chosen
), gone AS (
    DELETE FROM forebay.dead_letters l USING counted
    WHERE l.letter_id = counted.letter_id AND counted.bytes_before < %(bytes_max)b::bigint
    RETURNING l.letter_id, counted.queue, counted.partition, l.group_name, l.transaction_id,
        CASE WHEN %(is_whole)b::boolean THEN l.payload END AS payload, l.trace_id, l.headers, l.is_binary
)
SELECT letter_id, queue, partition, group_name, transaction_id, payload, trace_id, headers, is_binary
FROM gone ORDER BY letter_id
