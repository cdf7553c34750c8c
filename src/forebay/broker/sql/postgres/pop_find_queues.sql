-- The queues a pop may take from, the important ones first, with the group as it stands on each.
SELECT q.queue_id, q.name, q.options, g.group_id, g.last_active_us, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.queues q
LEFT JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = %(group)b::text
WHERE q.name IS NOT NULL
    AND CASE WHEN %(queue)b::text <> '' THEN q.name = %(queue)b::text
        ELSE %(namespace)b::text IN ('', q.namespace) AND %(task)b::text IN ('', q.task) END
ORDER BY q.priority DESC, q.name
