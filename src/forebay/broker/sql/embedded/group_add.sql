-- A group joins a queue.
INSERT INTO groups (queue_id, name, mode, from_us, start_seq, created_us, last_active_us)
VALUES (?, ?, ?, ?, ?, ?, ?)
