-- Remove those of some partitions that are still empty, with their deliveries. The queue and all their deliveries are
-- locked: nothing is pushed to them, and no group claims anything of them.
WITH empty AS (
    SELECT p.partition_id, p.removed_seq
    FROM forebay.partitions p
    JOIN forebay.queues q ON q.queue_id = p.queue_id
    WHERE p.partition_id = ANY (%(partition_ids)b::bigint[]) AND p.newest_us < %(before_us)b::bigint
        AND NOT EXISTS (SELECT FROM forebay.messages m WHERE m.partition_id = p.partition_id)
        AND NOT EXISTS (SELECT FROM forebay.dead_letters l WHERE l.partition_id = p.partition_id)
        AND NOT EXISTS (SELECT FROM forebay.traces t WHERE t.partition_id = p.partition_id)
        AND NOT EXISTS (
            SELECT FROM forebay.deliveries d
            WHERE d.partition_id = p.partition_id AND (d.cursor_seq >= q.next_seq OR d.open_count > 0)
        )
), deleted AS (
    DELETE FROM forebay.deleted_messages x USING empty WHERE x.partition_id = empty.partition_id
), deliveries AS (
    DELETE FROM forebay.deliveries d USING empty WHERE d.partition_id = empty.partition_id
), remembered AS (
    UPDATE forebay.queues q SET gone_seq = greatest(q.gone_seq, (SELECT max(removed_seq) FROM empty))
    WHERE q.queue_id = %(queue_id)b::bigint AND EXISTS (SELECT FROM empty)
)
DELETE FROM forebay.partitions p USING empty WHERE p.partition_id = empty.partition_id
RETURNING p.partition_id
