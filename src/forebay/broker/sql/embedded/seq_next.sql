-- The first message of a partition behind a seq.
SELECT max(first_seq, ?2 + 1)
FROM blocks
WHERE partition_id = ?1 AND last_seq > ?2 AND position >= 0 AND first_seq >= coalesce((SELECT max(first_seq) FROM
    blocks WHERE partition_id = ?1 AND first_seq <= ?2 + 1), 0)
ORDER BY first_seq
LIMIT 1
