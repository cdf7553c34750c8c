-- How many parcels wait warm in these classes, each given as [class], by flow; without those of paused flows.
SELECT q.action_class, q.flow, CAST(sum(q.queued) AS bigint)
FROM forebay.action_queues AS q
LEFT JOIN forebay.dispatch_flows AS f ON f.flow = q.flow
WHERE q.action_class IN (SELECT k.value ->> 0 FROM forebay.each(:classes) AS k)
    AND q.queued > 0 AND COALESCE(f.state, 'RUNNING') <> 'PAUSED'
GROUP BY q.action_class, q.flow
ORDER BY q.action_class, q.flow
