-- Blocks of a queue's partitions that begin between two seqs.
SELECT b.record_seq, b.position, b.partition_id, b.first_seq, b.last_seq, b.count, p.floor_seq
FROM partitions p
JOIN blocks b ON b.partition_id = p.id AND b.first_seq BETWEEN ? AND ? AND b.position >= 0
WHERE p.queue_id = ?
ORDER BY b.partition_id, b.first_seq
