-- An id whose message was not stored.
DELETE FROM transaction_ids WHERE partition_id = ? AND transaction_id = ? AND seq >= ?
