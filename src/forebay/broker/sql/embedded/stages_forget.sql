-- Forget the stages of an epoch: of all its writes and queues, or of one.
DELETE
FROM stages
WHERE producer = ? AND epoch = ? AND (? OR "write" = ?) AND coalesce(queue = ?, 1)
RETURNING stage_id
