-- What is kept of a queue's partitions, or of one, behind a seq and behind where a group stands, if one is given: messages,
-- and the numbers of the partitions that are not in this sum, because only their state or their record says what is left.
WITH behind AS (
    SELECT p.id AS partition_id, p.pushed,
        max(coalesce(s.cursor_seq, g.start_seq, 0), :beyond_seq, p.floor_seq) AS seq,
        coalesce(s.has_pending, 0) OR EXISTS (SELECT 1 FROM deleted_messages d WHERE d.partition_id = p.id) AS is_odd
    FROM partitions p
    LEFT JOIN groups g ON g.id = :group_id
    LEFT JOIN states s ON s.group_id = g.id AND s.partition_id = p.id
    WHERE
        p.queue_id = :queue_id AND (:partition IS NULL OR p.name = :partition)
        AND p.last_seq > max(coalesce(s.cursor_seq, g.start_seq, 0), :beyond_seq, p.floor_seq)
), placed AS (
    SELECT behind.*, b.last_seq > behind.seq AND b.position >= 0 AS is_cut,
        coalesce(
            b.before + b.count,
            (SELECT f.before FROM blocks f WHERE f.partition_id = behind.partition_id ORDER BY f.first_seq LIMIT 1),
            0
        ) AS upto,
        coalesce((
            SELECT sum(t.count) FROM blocks t INDEXED BY lost_blocks
            WHERE t.partition_id = behind.partition_id AND t.position < 0 AND t.first_seq > behind.seq
        ), 0) AS lost
    FROM behind
    LEFT JOIN blocks b ON b.partition_id = behind.partition_id AND b.first_seq = (
        SELECT max(l.first_seq) FROM blocks l WHERE l.partition_id = behind.partition_id AND l.first_seq <= behind.seq
    )
), counted AS (
    SELECT partition_id, pushed - upto - lost AS messages, is_odd OR coalesce(is_cut, 0) AS is_special FROM placed
)
SELECT coalesce(sum(CASE WHEN NOT is_special THEN messages END), 0),
    group_concat(CASE WHEN is_special THEN partition_id END, ' ')
FROM counted
