-- Forget removed partitions of which the log holds nothing any more; a piece of them.
DELETE
FROM removed_partitions
WHERE queue_id = ?1 AND name IN (SELECT name FROM removed_partitions WHERE queue_id = ?1 AND floor_seq < ?2 LIMIT
    ?3)
