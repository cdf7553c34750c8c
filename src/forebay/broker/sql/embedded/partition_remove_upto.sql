-- Messages of a partition up to a seq are removed.
UPDATE partitions
SET floor_seq = ?1, removed = removed + ?2, size = CASE WHEN pushed > removed + ?2 THEN max(size - ?3, 0) ELSE 0 END
WHERE id = ?4
