-- Partitions of a queue, or the one of a name, a piece by number. NOT INDEXED: the numbers are in order as they are.
SELECT id
FROM partitions NOT INDEXED
WHERE id > ?1 AND queue_id = ?2 AND (?3 IS NULL OR name = ?3)
ORDER BY id
LIMIT ?4
