-- What is kept of a queue's partitions, or of one, behind what a group was given, behind where a seek would set it, and
-- behind the one of both that is further on; and states of the group: those under a lease, and those in whose midst the
-- seek's seq stands.
WITH wanted AS (
    SELECT q.queue_id, g.group_id, coalesce(g.start_seq, 0) AS start_seq, greatest(0, CASE
        WHEN %(seq)b::bigint IS NOT NULL THEN %(seq)b::bigint - 1
        WHEN %(time_us)b::bigint IS NOT NULL THEN forebay.first_seq_since(q.queue_id, %(time_us)b::bigint) - 1
        ELSE q.next_seq - 1 END) AS target_seq
    FROM forebay.queues q
    LEFT JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = %(group)b::text
    WHERE q.name = %(queue)b::text
), places AS (
    SELECT p.partition_id, p.last_seq, p.last_position, p.removed_seq, p.removed_position, w.target_seq,
        coalesce(d.cursor_seq, w.start_seq) AS cursor_seq, coalesce(d.seen_seq, w.start_seq) AS seen_seq,
        coalesce(d.open_count, 0) AS open_count, d.state, coalesce(d.lease_id, '') AS lease_id
    FROM wanted w
    JOIN forebay.partitions p ON p.queue_id = w.queue_id
        AND (%(partition)b::text IS NULL OR p.name = %(partition)b::text)
    LEFT JOIN forebay.deliveries d ON d.group_id = w.group_id AND d.partition_id = p.partition_id
), counted AS (
    SELECT places.*, kept.*
    FROM places
    CROSS JOIN LATERAL (
        SELECT sum(behind.messages) FILTER (WHERE point.name = 'group') AS behind_group,
            sum(behind.messages) FILTER (WHERE point.name = 'target') AS behind_target
        FROM (VALUES ('group', seen_seq), ('target', target_seq)) point (name, seq)
        CROSS JOIN LATERAL (
            SELECT last_position - greatest(removed_position, forebay.position_at(partition_id, point.seq)) - (
                SELECT count(*) FROM forebay.deleted_messages x
                WHERE x.partition_id = places.partition_id AND x.seq > greatest(removed_seq, point.seq)
            ) AS messages
            WHERE last_seq > point.seq
        ) behind
    ) kept
)
SELECT wanted.group_id IS NULL, wanted.target_seq, sums.partitions, sums.waiting, sums.waiting_after, sums.both_waiting,
    sums.leased, sums.cut, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM wanted
CROSS JOIN (
    SELECT count(*) AS partitions, coalesce(sum(coalesce(behind_group, 0) + open_count), 0)::bigint AS waiting,
        coalesce(sum(behind_target), 0)::bigint AS waiting_after,
        coalesce(sum(
            coalesce(CASE WHEN seen_seq >= target_seq THEN behind_group ELSE behind_target END, 0)
                + CASE WHEN target_seq <= cursor_seq THEN open_count ELSE 0 END
        ), 0)::bigint AS both_waiting,
        array_agg(state) FILTER (WHERE lease_id <> '') AS leased,
        array_agg(state) FILTER (WHERE cursor_seq < target_seq AND target_seq < seen_seq) AS cut
    FROM counted
) sums
