-- The queues of partitions, each given by its number.
SELECT DISTINCT q.name FROM json_each(:numbers) AS k
JOIN partitions AS p ON p.id = k.value
JOIN queues AS q ON q.id = p.queue_id
