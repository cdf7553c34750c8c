-- The first message of a queue that may be read, if the block that it is in says so, and whether it is kept.
SELECT max(b.first_seq, p.floor_seq + 1) AS seq, b.first_seq > p.floor_seq AND NOT EXISTS (SELECT 1 FROM
    deleted_messages d WHERE d.partition_id = p.id AND d.seq = b.first_seq) AS is_kept
FROM partitions p
JOIN blocks b ON b.partition_id = p.id AND b.first_seq = (SELECT min(first_seq) FROM blocks WHERE partition_id =
    p.id AND position >= 0)
WHERE p.queue_id = :queue_id
ORDER BY seq, is_kept DESC
LIMIT 1
