-- Which flows have parcels that wait cold in a class, among those given as [class, flow].
SELECT DISTINCT q.action_class, q.flow
FROM forebay.each(:keys) AS k
JOIN forebay.action_queues AS q ON q.action_class = k.value ->> 0 AND q.flow = k.value ->> 1
WHERE q.cold > 0
