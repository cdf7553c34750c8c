-- Blocks of a partition that are lost, as far as they are behind a seq.
SELECT first_seq, last_seq, CASE WHEN first_seq > :seq THEN count ELSE 0 END
FROM blocks
WHERE partition_id = :partition_id AND position < 0 AND last_seq > :seq
