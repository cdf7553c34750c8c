-- Remember what a write of an epoch has committed to a queue.
INSERT INTO queue_commits (producer, epoch, "write", queue, rows, size, checksum, request, messages, duplicates,
    first_seq, created_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
