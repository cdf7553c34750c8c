-- Whether there should be messages between two seqs, of a queue or of some partitions of it.
SELECT 1
FROM partitions p
JOIN blocks b ON b.partition_id = p.id AND b.first_seq BETWEEN ?2 AND ?3 AND b.position >= 0 AND b.last_seq >
    p.floor_seq
WHERE p.queue_id = ?1 AND (?4 = '[]' OR p.name IN (SELECT value FROM json_each(?4)))
LIMIT 1
