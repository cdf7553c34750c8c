-- Groups of all queues, or of one, with their lag. It looks at every partition: for people and metrics, not for every request.
SELECT g.name, q.name, g.subscription_mode, g.subscription_from_us, g.created_us, g.last_active_us, coalesce(l.letters, 0),
    coalesce(lag.partitions, 0), coalesce(lag.lagging, 0), coalesce(lag.messages, 0), coalesce(lag.oldest_us, now.us), now.us
FROM forebay.groups g
JOIN forebay.queues q ON q.queue_id = g.queue_id AND q.name IS NOT NULL
LEFT JOIN (SELECT queue_id, group_name, count(*) AS letters FROM forebay.dead_letters GROUP BY queue_id, group_name) l
    ON l.queue_id = g.queue_id AND l.group_name = g.name
CROSS JOIN (SELECT coalesce(%(now_us)b::bigint, forebay.now_us()) AS us) now
LEFT JOIN LATERAL (
    SELECT count(*) AS partitions, count(*) FILTER (WHERE w.messages > 0) AS lagging, sum(w.messages)::bigint AS messages,
        min(CASE WHEN w.messages > 0 THEN (
            SELECT m.created_us FROM forebay.messages m
            WHERE m.partition_id = w.partition_id AND m.seq > w.cursor_seq ORDER BY m.seq LIMIT 1
        ) END) AS oldest_us
    FROM forebay.waiting w WHERE w.group_id = g.group_id
) lag ON true
WHERE %(queue)b::text IS NULL OR q.name = %(queue)b::text
ORDER BY q.name, g.name
