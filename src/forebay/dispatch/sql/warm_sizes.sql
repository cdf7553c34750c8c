-- How many parcels wait warm, by class.
SELECT action_class, CAST(sum(queued) AS bigint)
FROM forebay.action_queues
GROUP BY action_class
HAVING sum(queued) > 0
