-- How long until the first partition is due that a pop could take from; no row, or NULL, when none waits for its time.
SELECT min(d.due_us) - coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.queues q
JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = %(group)b::text
CROSS JOIN LATERAL (
    SELECT e.due_us FROM forebay.deliveries e
    WHERE e.group_id = g.group_id AND e.due_us IS NOT NULL
    ORDER BY e.due_us LIMIT 1
) d
WHERE q.name IS NOT NULL
    AND CASE WHEN %(queue)b::text <> '' THEN q.name = %(queue)b::text
        ELSE %(namespace)b::text IN ('', q.namespace) AND %(task)b::text IN ('', q.task) END
