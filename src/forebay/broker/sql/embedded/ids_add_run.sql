-- Ids of neighbours in one partition, which have one seq after the other.
INSERT OR IGNORE INTO transaction_ids (partition_id, transaction_id, seq)
SELECT ?, value, ? + key
FROM json_each(?)
