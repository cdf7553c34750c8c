-- The queue a pop asks for, with the group as it stands on it.
SELECT q.queue_id, q.name, q.options, g.group_id, g.last_active_us, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.queues q
LEFT JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = %(group)b::text
WHERE q.name = %(queue)b::text
