-- Whether there should be messages between two seqs, of a queue or of some partitions of it.
SELECT 1
FROM partitions p
JOIN blocks b ON b.partition_id = p.id AND b.first_seq BETWEEN :first_seq AND :last_seq AND b.position >= 0 AND b.last_seq >
    p.floor_seq
WHERE p.queue_id = :queue_id AND (:partitions = '[]' OR p.name IN (SELECT value FROM json_each(:partitions)))
LIMIT 1
