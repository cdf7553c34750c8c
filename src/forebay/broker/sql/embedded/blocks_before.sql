-- Up to where partitions have blocks that begin before a seq.
SELECT b.partition_id, max(b.last_seq)
FROM partitions p
JOIN blocks b ON b.partition_id = p.id AND b.first_seq < ?
WHERE p.queue_id = ?
GROUP BY b.partition_id
