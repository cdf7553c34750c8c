-- Remove a dead letter.
DELETE FROM dead_letters WHERE id = ?
