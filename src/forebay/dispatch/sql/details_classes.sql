-- Action classes: what waits and runs, and how often each went cold and warm again.
SELECT c.action_class, COALESCE(CAST(sum(q.queued) AS bigint), 0), COALESCE(CAST(sum(q.cold) AS bigint), 0),
       COALESCE(CAST(sum(q.leased) AS bigint), 0), c.is_cold, c.went_cold, c.went_warm
FROM forebay.action_classes AS c
LEFT JOIN forebay.action_queues AS q ON q.action_class = c.action_class
GROUP BY c.action_class, c.is_cold, c.went_cold, c.went_warm
ORDER BY c.action_class
