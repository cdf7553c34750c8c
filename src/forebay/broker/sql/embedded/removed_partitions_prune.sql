-- Forget removed partitions of which the log holds nothing any more; a piece of them.
DELETE
FROM removed_partitions
WHERE queue_id = :queue_id AND name IN (SELECT name FROM removed_partitions WHERE queue_id = :queue_id AND floor_seq < :first_seq LIMIT
    :limit)
