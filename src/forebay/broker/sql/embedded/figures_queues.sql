-- Of each queue, or of one: partitions, messages ever and removed, the newest message, bytes.
SELECT q.id, coalesce(s.partitions, 0), q.gone_pushed + coalesce(s.pushed, 0), q.gone_pushed + coalesce(s.removed, 0),
    coalesce(s.newest_us, 0), coalesce(s.size, 0)
FROM queues q
LEFT JOIN (
    SELECT queue_id, count(*) AS partitions, sum(pushed) AS pushed, sum(removed) AS removed, max(newest_us) AS newest_us,
        sum(size) AS size
    FROM partitions
    WHERE :queue_id IS NULL OR queue_id = :queue_id
    GROUP BY queue_id
) s ON s.queue_id = q.id
WHERE :queue_id IS NULL OR q.id = :queue_id
