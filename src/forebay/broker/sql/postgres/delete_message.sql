-- Delete one message of a queue that is locked. Its position stays taken.
WITH gone AS (
    DELETE FROM forebay.messages m WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = %(seq)b::bigint
    RETURNING m.partition_id, m.seq, m.position, octet_length(m.payload) AS size
), noted AS (
    INSERT INTO forebay.deleted_messages (partition_id, seq, position) SELECT partition_id, seq, position FROM gone
)
UPDATE forebay.queues q SET removed = q.removed + 1, size_bytes = q.size_bytes - gone.size
FROM gone WHERE q.queue_id = %(queue_id)b::bigint
RETURNING q.queue_id
