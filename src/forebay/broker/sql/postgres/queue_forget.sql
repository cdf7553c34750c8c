-- The queue is gone for all servers from this commit on; what it held is removed behind it, in pieces. Its commits go
-- along: one that is repeated writes to the queue that is made anew.
WITH commits AS (
    DELETE FROM forebay.queue_commits WHERE queue = %(name)b::text
)
UPDATE forebay.queues SET name = NULL WHERE name = %(name)b::text RETURNING queue_id
