-- Remove a bounded number of messages of a queue that was deleted: by a list of seqs, which are looked up in the index.
-- As a join, they would be found by reading all messages whenever the planner knows little about the table yet.
DELETE FROM forebay.messages
WHERE queue_id = %(queue_id)b::bigint AND seq = ANY (ARRAY(
    SELECT seq FROM forebay.messages WHERE queue_id = %(queue_id)b::bigint ORDER BY seq LIMIT %(limit)b::bigint
))
RETURNING seq
