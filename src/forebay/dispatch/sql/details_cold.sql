-- What waits cold, by class, flow and action: how many, and since when.
SELECT q.action_class, q.flow, q.flow_type, q.action, q.cold,
       (SELECT min(c.queued_us)
        FROM forebay.cold_queue_entries AS c
        WHERE c.action_class = q.action_class AND c.flow = q.flow AND c.action = q.action)
FROM forebay.action_queues AS q
WHERE q.cold > 0
ORDER BY q.action_class, q.flow, q.action
