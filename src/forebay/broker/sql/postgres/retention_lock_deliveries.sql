-- Lock the deliveries that hold messages which are gone.
SELECT d.group_id, d.partition_id, d.state, d.cursor_seq, p.removed_seq
FROM forebay.deliveries d
JOIN forebay.partitions p ON p.partition_id = d.partition_id
WHERE d.partition_id = ANY (%(partition_ids)b::bigint[]) AND d.open_count > 0 AND d.cursor_seq < p.removed_seq
ORDER BY d.group_id, d.partition_id
FOR UPDATE OF d
