-- A message is deleted by itself.
INSERT INTO deleted_messages (partition_id, seq) VALUES (?, ?)
