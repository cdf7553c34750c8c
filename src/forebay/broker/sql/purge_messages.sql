-- Remove a bounded number of messages of a queue that was deleted.
WITH front AS (
    SELECT seq FROM forebay.messages WHERE queue_id = %(queue_id)b::bigint ORDER BY seq LIMIT %(limit)b::bigint
)
DELETE FROM forebay.messages m USING front WHERE m.queue_id = %(queue_id)b::bigint AND m.seq = front.seq
RETURNING m.seq
