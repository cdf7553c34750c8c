-- How far each group is behind: messages, partitions with some, the first seq of all that wait; and the partitions that
-- are not in these sums, because only their state or their record says what is left. Of each of those its number, the
-- seq up to which the group has finished, messages ever, those up to that seq, the first seq behind it, and 1 if the
-- seq stands in the middle of a record, 2 if nothing but a look at the partition tells.
WITH behind AS (
    SELECT g.id AS group_id, p.id AS partition_id, p.pushed,
        max(coalesce(s.cursor_seq, g.start_seq), p.floor_seq) AS seq, coalesce(s.has_pending, 0) AS has_pending,
        EXISTS (SELECT 1 FROM deleted_messages d WHERE d.partition_id = p.id) AS has_deleted
    FROM partitions p NOT INDEXED -- by their numbers: of a range of them, no others are looked at
    CROSS JOIN groups g ON g.queue_id = p.queue_id
    LEFT JOIN states s ON s.group_id = g.id AND s.partition_id = p.id
    WHERE
        p.id > coalesce(:after_partition, 0) AND p.id <= coalesce(:last_partition, 9223372036854775807)
        AND (:queue_id IS NULL OR p.queue_id = :queue_id)
        AND p.last_seq > max(coalesce(s.cursor_seq, g.start_seq), p.floor_seq)
), placed AS (
    SELECT behind.*, coalesce(b.last_seq > behind.seq AND b.position >= 0, 0) AS is_cut,
        coalesce(b.position < 0, 0) AS is_lost,
        coalesce(
            b.before + b.count,
            (SELECT f.before FROM blocks f WHERE f.partition_id = behind.partition_id ORDER BY f.first_seq LIMIT 1),
            0
        ) AS upto,
        coalesce((
            SELECT sum(t.count) FROM blocks t INDEXED BY lost_blocks
            WHERE t.partition_id = behind.partition_id AND t.position < 0 AND t.first_seq > behind.seq
        ), 0) AS lost,
        (
            SELECT n.first_seq FROM blocks n
            WHERE n.partition_id = behind.partition_id AND n.first_seq > behind.seq AND n.position >= 0
            ORDER BY n.first_seq LIMIT 1
        ) AS next_seq
    FROM behind
    LEFT JOIN blocks b ON b.partition_id = behind.partition_id AND b.first_seq = (
        SELECT max(l.first_seq) FROM blocks l WHERE l.partition_id = behind.partition_id AND l.first_seq <= behind.seq
    )
), counted AS (
    SELECT group_id, partition_id, seq, pushed, upto, pushed - upto - lost AS messages, next_seq,
        has_pending OR has_deleted OR is_cut AS is_special,
        CASE WHEN has_deleted OR is_lost OR lost > 0 THEN 2 ELSE is_cut END AS look
    FROM placed
)
SELECT group_id,
    sum(CASE WHEN NOT is_special THEN messages END),
    sum(NOT is_special AND messages > 0),
    min(CASE WHEN NOT is_special AND messages > 0 THEN next_seq END),
    group_concat(
        CASE WHEN is_special THEN
            partition_id || ' ' || seq || ' ' || pushed || ' ' || upto || ' ' || coalesce(next_seq, 0) || ' ' || look
        END,
        ','
    )
FROM counted
GROUP BY group_id
