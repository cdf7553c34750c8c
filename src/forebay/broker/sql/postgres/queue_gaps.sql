-- The last message that retention, or a person, has removed of a queue, of any partition.
SELECT greatest(q.gone_seq, (SELECT max(p.removed_seq) FROM forebay.partitions p WHERE p.queue_id = q.queue_id))
FROM forebay.queues q WHERE q.name = %(queue)b::text
