-- A dead letter.
SELECT d.id, d.queue_id, d.partition_id, p.name, d.group_name, d.seq, d.attempts, d.reason, d.failed_us,
    d.transaction_id, d.trace_id, d.headers, d.payload, d.flags, d.created_us
FROM {dead_letters_all} WHERE d.id = ?
