-- Queues by name, with their numbers.
SELECT name, id FROM queues ORDER BY name
