-- Lock the partition that is due first, waiting for the transaction that has it: used when all that is due is in
-- other hands.
SELECT d.partition_id, d.state, d.cursor_seq, p.name, p.newest_us, p.removed_seq,
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.deliveries d
JOIN forebay.partitions p ON p.partition_id = d.partition_id
WHERE d.group_id = %(group_id)b::bigint AND d.due_us <= coalesce(%(now_us)b::bigint, forebay.now_us())
ORDER BY d.due_us
LIMIT %(limit)b::bigint
FOR UPDATE OF d
