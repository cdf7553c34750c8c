-- The highest seq that each queue has ever given out.
SELECT id, max(indexed_seq, coalesce((SELECT max(last_seq) FROM partitions WHERE queue_id = q.id), 0))
FROM queues q
