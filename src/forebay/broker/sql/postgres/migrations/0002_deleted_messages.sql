-- Messages that were deleted one by one, until retention has removed their neighbours too. A position stays taken, so
-- that the lag of a group is still a subtraction, less what stands here.

CREATE TABLE forebay.deleted_messages (
    partition_id bigint NOT NULL REFERENCES forebay.partitions,
    seq bigint NOT NULL,
    position bigint NOT NULL,
    PRIMARY KEY (partition_id, seq)
);

-- How many messages of the partition came up to `wanted_seq`, as far as they are kept or were deleted.
CREATE OR REPLACE FUNCTION forebay.position_at(wanted_partition_id bigint, wanted_seq bigint) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT greatest(0, (
        SELECT position FROM forebay.messages
        WHERE partition_id = wanted_partition_id AND seq <= wanted_seq ORDER BY seq DESC LIMIT 1
    ), (
        SELECT position FROM forebay.deleted_messages
        WHERE partition_id = wanted_partition_id AND seq <= wanted_seq ORDER BY seq DESC LIMIT 1
    ))
$$;

-- What each group has not finished, per partition.
CREATE OR REPLACE VIEW forebay.waiting AS
SELECT g.queue_id, g.group_id, p.partition_id, coalesce(d.cursor_seq, g.start_seq) AS cursor_seq,
    p.last_position - greatest(p.removed_position, CASE
        WHEN d.seen_position IS NOT NULL THEN d.seen_position
        WHEN g.start_seq = 0 THEN 0
        WHEN p.last_seq <= g.start_seq THEN p.last_position
        ELSE forebay.position_at(p.partition_id, g.start_seq)
    END) + coalesce(d.open_count, 0) - (
        SELECT count(*) FROM forebay.deleted_messages x
        WHERE x.partition_id = p.partition_id AND x.seq > greatest(p.removed_seq, coalesce(d.seen_seq, g.start_seq))
    ) AS messages
FROM forebay.groups g
JOIN forebay.partitions p ON p.queue_id = g.queue_id
LEFT JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id;
