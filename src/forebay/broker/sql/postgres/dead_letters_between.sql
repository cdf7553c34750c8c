-- The seqs of a group's dead letters in a partition, between two seqs.
SELECT l.seq
FROM forebay.queues q
JOIN forebay.partitions p ON p.queue_id = q.queue_id AND p.name = %(partition)b::text
JOIN forebay.dead_letters l ON l.partition_id = p.partition_id
WHERE q.name = %(queue)b::text AND l.group_name = %(group)b::text
    AND l.seq BETWEEN %(first_seq)b::bigint AND %(last_seq)b::bigint
ORDER BY l.seq
LIMIT %(limit)b::bigint
