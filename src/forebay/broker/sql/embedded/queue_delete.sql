-- Delete a queue; what it left is purged in turns.
DELETE FROM queues WHERE id = ?
