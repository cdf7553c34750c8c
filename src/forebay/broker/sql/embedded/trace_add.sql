-- An event of a message.
INSERT INTO traces (partition_id, transaction_id, group_name, event_type, data, created_us)
VALUES (?, ?, ?, ?, ?, ?)
