-- Set the group's cursor in one partition; its lease ends.
INSERT INTO forebay.deliveries (group_id, partition_id, state, cursor_seq, seen_seq, seen_position, open_count,
    lease_id, due_us)
SELECT %(group_id)b::bigint, p.partition_id, ''::bytea, %(start_seq)b::bigint, %(start_seq)b::bigint,
    forebay.position_at(p.partition_id, %(start_seq)b::bigint), 0, '',
    CASE WHEN p.last_seq > %(start_seq)b::bigint THEN %(now_us)b::bigint END
FROM forebay.partitions p
WHERE p.queue_id = %(queue_id)b::bigint AND p.name = %(partition)b::text
ON CONFLICT (group_id, partition_id) DO UPDATE SET state = excluded.state, cursor_seq = excluded.cursor_seq,
    seen_seq = excluded.seen_seq, seen_position = excluded.seen_position, open_count = 0, lease_id = '',
    due_us = excluded.due_us
RETURNING 1
