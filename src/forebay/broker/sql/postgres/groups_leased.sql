-- The deliveries under a lease, with the names of their groups and queues.
SELECT q.name, g.name, d.state, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.deliveries d
JOIN forebay.groups g ON g.group_id = d.group_id
JOIN forebay.queues q ON q.queue_id = g.queue_id AND q.name IS NOT NULL
WHERE d.lease_id <> '' AND (%(queue)b::text IS NULL OR q.name = %(queue)b::text)
