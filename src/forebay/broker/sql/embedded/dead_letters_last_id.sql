-- The newest dead letter of all.
SELECT coalesce(max(id), 0) FROM dead_letters
