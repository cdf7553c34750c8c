-- The last block of a partition that begins at a seq or before it.
SELECT p.name, b.first_seq, b.last_seq, b.count, b.before, b.record_seq, b.position
FROM partitions p
JOIN blocks b ON b.partition_id = p.id
WHERE p.id = ?1 AND b.first_seq <= ?2
ORDER BY b.first_seq DESC
LIMIT 1
