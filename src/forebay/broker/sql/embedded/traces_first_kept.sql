-- The first trace that is not too old, of those before a number.
SELECT id FROM traces WHERE id < ? AND created_us >= ? ORDER BY id LIMIT 1
