-- Forget a group; what it left is purged in turns.
DELETE FROM groups WHERE id = ?
