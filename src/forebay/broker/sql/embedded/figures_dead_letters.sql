-- How many dead letters each queue, or one, has.
SELECT queue_id, count(*)
FROM dead_letters
WHERE :queue_id IS NULL OR queue_id = :queue_id
GROUP BY queue_id
