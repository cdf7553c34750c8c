-- The id of one message.
DELETE FROM transaction_ids WHERE partition_id = ? AND transaction_id = ? AND seq = ?
