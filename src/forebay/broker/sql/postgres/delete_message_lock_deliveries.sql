-- Lock all deliveries of a partition of which a message is gone. All, because one may lease it in this moment.
SELECT d.group_id, d.state, d.cursor_seq, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.deliveries d
WHERE d.partition_id = %(partition_id)b::bigint
ORDER BY d.group_id
FOR UPDATE
