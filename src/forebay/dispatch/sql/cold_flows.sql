-- Flows with cold parcels in a class that may be leased.
SELECT DISTINCT q.flow
FROM forebay.action_queues AS q
LEFT JOIN forebay.dispatch_flows AS f ON f.flow = q.flow
WHERE q.action_class = :action_class AND q.cold > 0 AND COALESCE(f.state, 'RUNNING') <> 'PAUSED'
ORDER BY q.flow
