-- What waits, warm and cold, by class and flow; without paused flows.
SELECT q.action_class, q.flow, CAST(sum(q.queued) AS bigint), CAST(sum(q.cold) AS bigint)
FROM forebay.action_queues AS q
LEFT JOIN forebay.dispatch_flows AS f ON f.flow = q.flow
WHERE (q.queued > 0 OR q.cold > 0) AND COALESCE(f.state, 'RUNNING') <> 'PAUSED'
GROUP BY q.action_class, q.flow
ORDER BY q.action_class, q.flow
