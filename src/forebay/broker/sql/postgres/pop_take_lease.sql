-- Lock what a lease of the group covered.
SELECT d.partition_id, d.state, d.cursor_seq, p.name, p.newest_us, p.removed_seq,
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.deliveries d
JOIN forebay.partitions p ON p.partition_id = d.partition_id
WHERE d.lease_id = %(lease_id)b::text AND d.lease_id <> '' AND d.group_id = %(group_id)b::bigint
ORDER BY d.group_id, d.partition_id
FOR UPDATE OF d
