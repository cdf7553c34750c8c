-- All queues, or one, as they stand, from counters; the oldest message of each is one look into its index.
SELECT q.name, q.namespace, q.task, q.options, q.created_us, coalesce(p.partitions, 0), coalesce(oldest.seq, q.next_seq),
    q.next_seq, q.next_seq - 1 - q.removed, q.size_bytes, coalesce(l.letters, 0), coalesce(oldest.created_us, 0),
    CASE WHEN oldest.seq IS NULL THEN 0 ELSE q.newest_us END
FROM forebay.queues q
LEFT JOIN (SELECT queue_id, count(*) AS partitions FROM forebay.partitions GROUP BY queue_id) p USING (queue_id)
LEFT JOIN (SELECT queue_id, count(*) AS letters FROM forebay.dead_letters GROUP BY queue_id) l USING (queue_id)
LEFT JOIN LATERAL (
    SELECT m.seq, m.created_us FROM forebay.messages m WHERE m.queue_id = q.queue_id ORDER BY m.seq LIMIT 1
) oldest ON true
WHERE q.name IS NOT NULL AND (%(queue)b::text IS NULL OR q.name = %(queue)b::text)
ORDER BY q.name
