-- What happened to a message, the oldest first.
SELECT t.id, t.partition_id, t.transaction_id, t.group_name, t.event_type, t.data, t.created_us
FROM traces t
WHERE t.partition_id = ? AND t.transaction_id = ?
ORDER BY t.id
