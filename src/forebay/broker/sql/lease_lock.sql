-- Lock the deliveries under one lease.
SELECT d.group_id, d.partition_id, d.state, d.cursor_seq, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.deliveries d
WHERE d.lease_id = %(lease_id)b::text AND d.lease_id <> ''
ORDER BY d.group_id, d.partition_id
FOR UPDATE
