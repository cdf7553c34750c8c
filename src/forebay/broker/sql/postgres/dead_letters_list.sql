-- Dead letters that match, the newest first, as many as are given out at once.
SELECT letter_id, seq, queue, partition, queue_id, partition_id, transaction_id, trace_id, created_us, payload, headers,
    is_binary, attempts, group_name, reason, failed_us
FROM (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY letter_id DESC ROWS UNBOUNDED PRECEDING) - octet_length(payload)
        AS bytes_before
    FROM (
        SELECT l.letter_id, l.seq, q.name AS queue, p.name AS partition, q.queue_id, p.partition_id, l.transaction_id,
            l.trace_id, l.created_us, l.payload, l.headers, l.is_binary, l.attempts, l.group_name, l.reason, l.failed_us
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
        ORDER BY l.letter_id DESC LIMIT %(limit)b::bigint OFFSET %(offset)b::bigint
    ) page
) counted
WHERE bytes_before < %(bytes_max)b::bigint
ORDER BY letter_id DESC
