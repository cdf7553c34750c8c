-- Write deliveries that are locked. One without a plan is due now if its partition holds more, else not at all.
-- `last_seq` alone does not say so: its message may have been deleted. Where there may be more, the next one is looked
-- up, in order, so that it comes from the index: EXISTS may be answered by reading all messages.
UPDATE forebay.deliveries d
SET state = given.state, cursor_seq = given.cursor_seq, seen_seq = given.seen_seq, open_count = given.open_count,
    lease_id = given.lease_id, dropped = d.dropped + given.dropped,
    seen_position = CASE given.seen_seq WHEN d.seen_seq THEN d.seen_position ELSE coalesce((
        SELECT m.position FROM forebay.messages m
        WHERE m.partition_id = d.partition_id AND m.seq = given.seen_seq),
        forebay.position_at(d.partition_id, given.seen_seq)) END,
    due_us = coalesce(given.due_us, CASE WHEN p.last_seq > given.seen_seq THEN (
        SELECT %(now_us)b::bigint FROM forebay.messages m
        WHERE m.partition_id = given.partition_id AND m.seq > given.seen_seq ORDER BY m.seq LIMIT 1) END)
FROM unnest(%(group_ids)b::bigint[], %(partition_ids)b::bigint[], %(states)b::bytea[], %(cursor_seqs)b::bigint[],
    %(seen_seqs)b::bigint[], %(open_counts)b::integer[], %(lease_ids)b::text[], %(dropped)b::bigint[],
    %(due_us)b::bigint[])
    AS given (group_id, partition_id, state, cursor_seq, seen_seq, open_count, lease_id, dropped, due_us)
JOIN forebay.partitions p ON p.partition_id = given.partition_id
WHERE d.group_id = given.group_id AND d.partition_id = given.partition_id
RETURNING d.due_us
