-- A stage; its rows are in a file.
INSERT INTO stages (stage_id, producer, epoch, part, "write", queue, messages, size, checksum, created_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
