-- Remove a bounded number of dead letters of a queue that was deleted, behind a number.
DELETE FROM forebay.dead_letters
WHERE letter_id = ANY (ARRAY(
    SELECT letter_id FROM (
        SELECT letter_id, sum(size) OVER (ORDER BY letter_id ROWS UNBOUNDED PRECEDING) - size AS bytes_before
        FROM (
            SELECT letter_id, octet_length(payload) AS size FROM forebay.dead_letters
            WHERE queue_id = %(queue_id)b::bigint AND letter_id > %(after)b::bigint
            ORDER BY letter_id LIMIT %(limit)b::bigint
        ) front
    ) counted
    WHERE bytes_before < %(bytes_max)b::bigint
))
RETURNING letter_id
