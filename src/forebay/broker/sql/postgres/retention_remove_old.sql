-- Remove a bounded number of messages from the front of a queue that are older than a time, up to a seq. The queue is
-- locked.
WITH front AS (
    SELECT seq, created_us, octet_length(payload) AS size FROM forebay.messages
    WHERE queue_id = %(queue_id)b::bigint AND seq <= %(last_seq)b::bigint ORDER BY seq LIMIT %(limit)b::bigint
), chosen AS (
    SELECT seq, size FROM front
    WHERE seq < coalesce((SELECT min(seq) FROM front WHERE created_us >= %(before_us)b::bigint), 9223372036854775807)
), counted AS (
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
