-- Groups that have not popped for some time and hold no lease, and the time before which they last did.
SELECT g.name, q.name, limits.before_us
FROM forebay.groups g
JOIN forebay.queues q ON q.queue_id = g.queue_id AND q.name IS NOT NULL
CROSS JOIN (
    SELECT now.us AS now_us, now.us - %(kept_us)b::bigint AS before_us
    FROM (SELECT coalesce(%(now_us)b::bigint, forebay.now_us()) AS us) now
) limits
WHERE g.last_active_us < limits.before_us AND NOT EXISTS (
    SELECT FROM forebay.deliveries d
    WHERE d.group_id = g.group_id AND d.lease_id <> '' AND d.due_us > limits.now_us
)
ORDER BY q.name, g.name
