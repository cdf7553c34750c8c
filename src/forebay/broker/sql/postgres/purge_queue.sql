-- Remove a deleted queue that has no partitions any more, with its groups. Not while there are messages: a crash of the
-- database may have undone a piece, and no purge would find them without their queue.
WITH groups AS (
    DELETE FROM forebay.groups WHERE queue_id = %(queue_id)b::bigint
), holds AS (
    DELETE FROM forebay.holds WHERE queue_id = %(queue_id)b::bigint
), parcel_holds AS (
    DELETE FROM forebay.parcel_holds WHERE queue_id = %(queue_id)b::bigint
)
DELETE FROM forebay.queues q
WHERE q.queue_id = %(queue_id)b::bigint AND q.name IS NULL
    AND NOT EXISTS (SELECT FROM forebay.messages m WHERE m.queue_id = q.queue_id)
RETURNING q.queue_id
