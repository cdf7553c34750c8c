-- When a queue was made: its identity.
SELECT created_us FROM queues WHERE id = :queue_id
