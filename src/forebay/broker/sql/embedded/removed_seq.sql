-- The last seq that was removed, of a queue or of some partitions of it.
SELECT max(q.gone_seq, coalesce((SELECT max(p.floor_seq) FROM partitions p WHERE p.queue_id = q.id AND (?2 = '[]'
    OR p.name IN (SELECT value FROM json_each(?2)))), 0))
FROM queues q
WHERE q.id = ?1
