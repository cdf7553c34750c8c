-- Messages of a partition up to a seq are removed.
UPDATE partitions
SET floor_seq = :floor_seq, removed = removed + :messages, size = CASE WHEN pushed > removed + :messages THEN max(size - :size, 0) ELSE 0 END
WHERE id = :partition_id
