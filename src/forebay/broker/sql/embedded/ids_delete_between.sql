-- Ids of messages that cannot be read any more.
DELETE FROM transaction_ids WHERE partition_id = ? AND seq BETWEEN ? AND ?
