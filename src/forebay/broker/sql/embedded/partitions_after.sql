-- Partitions of a queue, or the one of a name, a piece by number. NOT INDEXED: the numbers are in order as they are.
SELECT id
FROM partitions NOT INDEXED
WHERE id > :after AND queue_id = :queue_id AND (:name IS NULL OR name = :name)
ORDER BY id
LIMIT :limit
