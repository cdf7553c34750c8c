-- The queue is gone for everybody from this commit on; what it held is removed behind it, in pieces.
UPDATE forebay.queues SET name = NULL WHERE name = %(name)b::text RETURNING queue_id
