-- Which of these ids a partition holds, with their seqs.
SELECT t.transaction_id, t.seq
FROM transaction_ids t
JOIN partitions p ON p.id = t.partition_id
WHERE t.partition_id = ? AND t.seq > p.floor_seq AND t.transaction_id IN (SELECT value FROM json_each(?))
