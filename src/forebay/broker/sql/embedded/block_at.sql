-- The last block of a partition that begins at a seq or before it.
SELECT p.name, b.first_seq, b.last_seq, b.count, b.before, b.record_seq, b.position
FROM partitions p
JOIN blocks b ON b.partition_id = p.id
WHERE p.id = ? AND b.first_seq <= ?
ORDER BY b.first_seq DESC
LIMIT 1
