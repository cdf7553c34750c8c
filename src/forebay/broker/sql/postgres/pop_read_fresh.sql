-- What the group has not seen yet of some partitions: of each as much as may be given out at once. Payloads only if there
-- is one partition: of several, most of what is read here may be too much for the batch.
SELECT given.partition_id, m.seq, m.transaction_id, m.created_us, m.size_bytes, m.trace_id, m.payload, m.headers,
    m.is_binary
FROM unnest(%(partition_ids)b::bigint[], %(seen_seqs)b::bigint[]) AS given (partition_id, seen_seq)
CROSS JOIN LATERAL (
    SELECT *, sum(size_bytes) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size_bytes AS bytes_before
    FROM (
        SELECT seq, transaction_id, created_us, trace_id, CASE WHEN %(is_whole)b::boolean THEN payload END AS payload,
            octet_length(payload) AS size_bytes, headers, is_binary
        FROM forebay.messages
        WHERE partition_id = given.partition_id AND seq > given.seen_seq ORDER BY seq LIMIT %(limit)b::bigint
    ) next
) m
WHERE m.bytes_before < %(bytes_max)b::bigint
ORDER BY m.seq
