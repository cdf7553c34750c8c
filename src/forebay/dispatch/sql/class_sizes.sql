-- What waits of these classes, each given as [class]: warm, warm of paused flows, cold of flows that are leased from,
-- cold of paused ones.
SELECT q.action_class,
       CAST(sum(q.queued) AS bigint),
       CAST(sum(CASE WHEN f.state = 'PAUSED' THEN q.queued ELSE 0 END) AS bigint),
       CAST(sum(CASE WHEN f.state = 'PAUSED' THEN 0 ELSE q.cold END) AS bigint),
       CAST(sum(CASE WHEN f.state = 'PAUSED' THEN q.cold ELSE 0 END) AS bigint)
FROM forebay.action_queues AS q
LEFT JOIN forebay.dispatch_flows AS f ON f.flow = q.flow
WHERE q.action_class IN (SELECT k.value ->> 0 FROM forebay.each(:classes) AS k)
GROUP BY q.action_class
