-- The number of a group.
SELECT id FROM groups WHERE queue_id = ? AND name = ?
