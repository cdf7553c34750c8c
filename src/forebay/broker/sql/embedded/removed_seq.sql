-- The last seq that was removed, of a queue or of some partitions of it.
SELECT max(q.gone_seq, coalesce((SELECT max(p.floor_seq) FROM partitions p WHERE p.queue_id = q.id AND (:partitions = '[]'
    OR p.name IN (SELECT value FROM json_each(:partitions)))), 0))
FROM queues q
WHERE q.id = :queue_id
