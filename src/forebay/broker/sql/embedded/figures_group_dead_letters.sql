-- How many dead letters each group of each queue, or of one, has.
SELECT queue_id, group_name, count(*)
FROM dead_letters
WHERE :queue_id IS NULL OR queue_id = :queue_id
GROUP BY queue_id, group_name
