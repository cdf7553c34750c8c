-- The queues of leases, each given by its id.
SELECT DISTINCT q.name FROM json_each(:ids) AS k
JOIN states AS s ON s.lease_id = k.value AND s.lease_id <> ''
JOIN partitions AS p ON p.id = s.partition_id
JOIN queues AS q ON q.id = p.queue_id
