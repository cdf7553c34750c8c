-- How many messages of a partition are kept; its bytes shrink with them.
UPDATE partitions
SET removed = pushed - :kept, size = CASE WHEN :kept > 0 THEN size * :kept / :kept_before ELSE 0 END
WHERE id = :partition_id
