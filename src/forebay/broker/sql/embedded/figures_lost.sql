-- How many messages of each queue, or of one, cannot be read any more.
SELECT queue_id, sum(messages)
FROM lost_messages
WHERE :queue_id IS NULL OR queue_id = :queue_id
GROUP BY queue_id
