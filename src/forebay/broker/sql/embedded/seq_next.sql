-- The first message of a partition behind a seq.
SELECT max(first_seq, :seq + 1)
FROM blocks
WHERE partition_id = :partition_id AND last_seq > :seq AND position >= 0 AND first_seq >= coalesce((SELECT max(first_seq) FROM
    blocks WHERE partition_id = :partition_id AND first_seq <= :seq + 1), 0)
ORDER BY first_seq
LIMIT 1
