-- Remove what is left of a queue that was deleted and holds no messages any more.
WITH doomed AS (
    SELECT partition_id FROM forebay.partitions WHERE queue_id = %(queue_id)b::bigint
), letters AS (
    DELETE FROM forebay.dead_letters WHERE queue_id = %(queue_id)b::bigint
), traces AS (
    DELETE FROM forebay.traces WHERE partition_id IN (SELECT partition_id FROM doomed)
), deleted AS (
    DELETE FROM forebay.deleted_messages WHERE partition_id IN (SELECT partition_id FROM doomed)
), deliveries AS (
    DELETE FROM forebay.deliveries WHERE partition_id IN (SELECT partition_id FROM doomed)
), groups AS (
    DELETE FROM forebay.groups WHERE queue_id = %(queue_id)b::bigint
), partitions AS (
    DELETE FROM forebay.partitions WHERE queue_id = %(queue_id)b::bigint
)
DELETE FROM forebay.queues WHERE queue_id = %(queue_id)b::bigint AND name IS NULL
