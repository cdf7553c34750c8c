-- A dead letter with a copy of its message.
INSERT INTO dead_letters (queue_id, partition_id, group_name, seq, attempts, reason, failed_us, transaction_id,
    trace_id, headers, payload, flags, created_us)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
