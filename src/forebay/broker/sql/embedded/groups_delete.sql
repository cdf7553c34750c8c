-- Forget all groups of a queue that is deleted.
DELETE FROM groups WHERE queue_id = ?
