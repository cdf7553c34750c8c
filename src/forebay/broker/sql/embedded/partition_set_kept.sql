-- How many messages of a partition are kept; its bytes shrink with them.
UPDATE partitions
SET removed = pushed - ?2, size = CASE WHEN ?2 > 0 THEN size * ?2 / ?3 ELSE 0 END
WHERE id = ?1
