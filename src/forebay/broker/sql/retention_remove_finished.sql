-- Remove a bounded number of messages that every group has finished and that are older than a time, from the fronts of
-- their partitions. The queue is locked.
WITH finished AS (
    SELECT w.partition_id, min(w.cursor_seq) AS seq FROM forebay.waiting w
    WHERE w.queue_id = %(queue_id)b::bigint GROUP BY w.partition_id
), bounds AS (
    SELECT finished.partition_id, coalesce((
        SELECT m.seq - 1 FROM forebay.messages m
        WHERE m.partition_id = finished.partition_id AND m.seq <= finished.seq AND m.created_us >= %(before_us)b::bigint
        ORDER BY m.seq LIMIT 1
    ), finished.seq) AS seq
    FROM finished
), chosen AS (
    SELECT m.seq FROM bounds
    CROSS JOIN LATERAL (
        SELECT seq FROM forebay.messages
        WHERE partition_id = bounds.partition_id AND seq <= bounds.seq ORDER BY seq LIMIT %(limit)b::bigint
    ) m
    LIMIT %(limit)b::bigint
), gone AS (
    DELETE FROM forebay.messages m USING chosen WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = chosen.seq
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
SELECT partition_id, count(*) FROM gone GROUP BY partition_id
