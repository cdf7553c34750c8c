-- Whether a queue is still there.
SELECT 1 FROM queues WHERE id = :queue_id
