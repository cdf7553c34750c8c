-- Messages of a queue from a seq on, as many as are given out at once.
SELECT seq, name, partition_id, transaction_id, trace_id, created_us, payload, headers, is_binary
FROM (
    SELECT *, sum(octet_length(payload)) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - octet_length(payload)
        AS bytes_before
    FROM (
        SELECT m.seq, p.name, p.partition_id, m.transaction_id, m.trace_id, m.created_us, m.payload, m.headers, m.is_binary
        FROM forebay.messages m JOIN forebay.partitions p ON p.partition_id = m.partition_id
        WHERE m.queue_id = %(queue_id)b::bigint AND m.seq >= %(from_seq)b::bigint
        ORDER BY m.seq LIMIT %(limit)b::bigint
    ) page
) counted
WHERE bytes_before < %(bytes_max)b::bigint
ORDER BY seq
