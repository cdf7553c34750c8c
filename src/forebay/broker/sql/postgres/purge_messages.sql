-- Remove a bounded number of messages of a queue that was deleted, behind a seq: by a list of seqs, which are looked up
-- in the index. As a join, they would be found by reading all messages whenever the planner knows little of the table.
DELETE FROM forebay.messages
WHERE queue_id = %(queue_id)b::bigint AND seq = ANY (ARRAY(
    SELECT seq FROM (
        SELECT seq, sum(size) OVER (ORDER BY seq ROWS UNBOUNDED PRECEDING) - size AS bytes_before
        FROM (
            SELECT seq, octet_length(payload) AS size FROM forebay.messages
            WHERE queue_id = %(queue_id)b::bigint AND seq > %(after)b::bigint ORDER BY seq LIMIT %(limit)b::bigint
        ) front
    ) counted
    WHERE bytes_before < %(bytes_max)b::bigint
))
RETURNING seq
