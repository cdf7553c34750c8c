-- A queue, how far it is indexed, and a group and a partition of it, where they are there.
SELECT q.id, q.indexed_seq, g.id, p.id
FROM queues q
LEFT JOIN groups g ON g.queue_id = q.id AND g.name = :group
LEFT JOIN partitions p ON p.queue_id = q.id AND p.name = :partition
WHERE q.name = :queue
