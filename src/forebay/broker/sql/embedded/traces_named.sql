-- Traces of a name, the newest first.
SELECT t.id, t.partition_id, t.transaction_id, t.group_name, t.event_type, t.data, t.created_us
FROM traces t
JOIN trace_names n ON n.trace_id = t.id
WHERE n.name = ?
ORDER BY t.id DESC LIMIT ? OFFSET ?
