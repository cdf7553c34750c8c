-- The groups of each queue, or of one.
SELECT queue_id, id, name, mode, from_us, created_us, last_active_us
FROM groups
WHERE :queue_id IS NULL OR queue_id = :queue_id
