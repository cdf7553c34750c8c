-- Look at a bounded number of partitions, in the order of their names: which begin with a message that every group has
-- finished and that is older than a time, and up to where have all groups finished these? With the last name looked at.
-- What a reader holds that is no group is not finished, nor is what an unfinished parcel
-- needs. Without a group nothing is.
SELECT max(p.name), array_agg(p.partition_id) FILTER (WHERE oldest.created_us < %(before_us)b::bigint),
    array_agg(finished.seq) FILTER (WHERE oldest.created_us < %(before_us)b::bigint)
FROM (
    SELECT name, partition_id, removed_seq, last_seq FROM forebay.partitions
    WHERE queue_id = %(queue_id)b::bigint AND name > %(after)b::text ORDER BY name LIMIT 500
) p
CROSS JOIN LATERAL (
    SELECT CASE WHEN count(*) > 0 THEN least(min(coalesce(d.cursor_seq, g.start_seq)), (
        SELECT min(h.seq) - 1 FROM forebay.holds h
        WHERE h.queue_id = %(queue_id)b::bigint AND h.until_us > %(now_us)b::bigint
    ), %(last_seq)b::bigint) END AS seq
    FROM forebay.groups g
    LEFT JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id
    WHERE g.queue_id = %(queue_id)b::bigint
) finished
LEFT JOIN LATERAL (
    SELECT m.created_us FROM forebay.messages m
    WHERE p.removed_seq < p.last_seq AND m.partition_id = p.partition_id AND m.seq > p.removed_seq AND m.seq <= finished.seq
    ORDER BY m.seq LIMIT 1
) oldest ON true
