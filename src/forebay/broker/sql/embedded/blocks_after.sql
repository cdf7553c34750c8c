-- Blocks of a partition from the one on that holds a seq, or the next; without what is lost.
SELECT first_seq, last_seq, count, before, record_seq, position
FROM blocks
WHERE partition_id = :partition_id AND first_seq >= coalesce((SELECT max(first_seq) FROM blocks WHERE partition_id = :partition_id AND
    first_seq <= :seq), 0) AND position >= 0
ORDER BY first_seq
LIMIT :limit
