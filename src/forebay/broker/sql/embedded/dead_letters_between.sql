-- The seqs of a group's dead letters in a partition, between two seqs.
SELECT l.seq
FROM queues q
JOIN partitions p ON p.queue_id = q.id AND p.name = :partition
JOIN dead_letters l ON l.partition_id = p.id
WHERE q.name = :queue AND l.group_name = :group AND l.seq BETWEEN :first_seq AND :last_seq
ORDER BY l.seq
LIMIT :limit
