-- A consumer asks for one partition: see to it that the group has a delivery there.
INSERT INTO forebay.deliveries (group_id, partition_id, state, cursor_seq, seen_seq, seen_position, open_count,
    lease_id, due_us)
SELECT g.group_id, p.partition_id, ''::bytea, g.start_seq, g.start_seq, forebay.position_at(p.partition_id, g.start_seq),
    0, '', CASE WHEN p.last_seq > g.start_seq THEN coalesce(%(now_us)b::bigint, forebay.now_us()) END
FROM forebay.groups g
JOIN forebay.partitions p ON p.queue_id = g.queue_id AND p.name = %(partition)b::text
WHERE g.group_id = %(group_id)b::bigint
    AND NOT EXISTS (
        SELECT FROM forebay.deliveries d WHERE d.group_id = g.group_id AND d.partition_id = p.partition_id
    )
ON CONFLICT DO NOTHING
