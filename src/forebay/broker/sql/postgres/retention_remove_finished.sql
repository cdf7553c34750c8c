-- Remove a bounded number of messages that are older than a time from the fronts of partitions, up to the seq that all
-- groups have finished in each. The queue is locked. A young message is looked for no further than one piece reaches.
WITH chosen AS (
    SELECT m.seq, m.size
    FROM unnest(%(partition_ids)b::bigint[], %(seqs)b::bigint[]) AS given (partition_id, finished_seq)
    JOIN forebay.partitions p ON p.partition_id = given.partition_id
    CROSS JOIN LATERAL (
        SELECT coalesce((
            SELECT front.seq FROM (
                SELECT seq, created_us FROM forebay.messages
                WHERE partition_id = p.partition_id AND seq > p.removed_seq AND seq <= given.finished_seq
                ORDER BY seq LIMIT %(limit)b::bigint
            ) front
            WHERE front.created_us >= %(before_us)b::bigint ORDER BY front.seq LIMIT 1
        ), given.finished_seq + 1) AS seq
    ) young
    CROSS JOIN LATERAL (
        SELECT seq, octet_length(payload) AS size FROM forebay.messages
        WHERE partition_id = p.partition_id AND seq > p.removed_seq AND seq < young.seq
        ORDER BY seq LIMIT %(limit)b::bigint
    ) m
    LIMIT %(limit)b::bigint
), counted AS (
    -- In the order of seqs, so that what is left out of a partition is behind what is taken.
    SELECT seq, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS bytes_before FROM chosen
), gone AS (
    DELETE FROM forebay.messages m USING counted
    WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = counted.seq AND counted.bytes_before < %(bytes_max)b::bigint
    RETURNING m.partition_id, m.seq, m.position, octet_length(m.payload) AS size
), by_partition AS (
    UPDATE forebay.partitions p
    SET removed_seq = greatest(p.removed_seq, sums.seq), removed_position = greatest(p.removed_position, sums.position)
    FROM (SELECT partition_id, max(seq) AS seq, max(position) AS position FROM gone GROUP BY partition_id) sums
    WHERE p.partition_id = sums.partition_id
), by_queue AS (
    UPDATE forebay.queues q SET removed = q.removed + sums.messages, size_bytes = q.size_bytes - sums.size
    FROM (SELECT count(*) AS messages, coalesce(sum(size), 0) AS size FROM gone) sums
    WHERE q.queue_id = %(queue_id)b::bigint AND sums.messages > 0
)
SELECT partition_id, count(*), sum(size)::bigint FROM gone GROUP BY partition_id
