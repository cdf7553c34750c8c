-- Remember messages that cannot be read any more; what is known already stays.
INSERT OR IGNORE INTO lost_messages (queue_id, partition_id, first_seq, last_seq, messages, reason, found_us)
VALUES (?, ?, ?, ?, ?, ?, ?)
