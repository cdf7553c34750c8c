-- An id that a producer gave, with the seq of its message.
INSERT OR IGNORE INTO transaction_ids (partition_id, transaction_id, seq) VALUES (?, ?, ?)
