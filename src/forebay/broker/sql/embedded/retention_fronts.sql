-- Partitions of a queue: the first message that is kept, and the last that every group has finished (0 without groups).
-- What a reader holds that is no group is not finished.
SELECT p.id, p.name, max(b.first_seq, p.floor_seq + 1) AS first_seq,
    coalesce(min(p.last_seq, coalesce((
        SELECT min(h.seq) - 1 FROM holds h WHERE h.queue_id = p.queue_id AND h.until_us > :now_us
    ), p.last_seq), (
        SELECT min(max(coalesce(s.cursor_seq, g.start_seq), CASE WHEN s.cursor_seq IS NULL THEN p.floor_seq ELSE 0 END))
        FROM groups g LEFT JOIN states s ON s.group_id = g.id AND s.partition_id = p.id
        WHERE g.queue_id = p.queue_id AND :is_done_wanted
    )), 0) AS done_seq
FROM partitions p
JOIN blocks b ON b.partition_id = p.id AND b.first_seq = (
    SELECT min(f.first_seq) FROM blocks f
    WHERE f.partition_id = p.id AND f.last_seq > p.floor_seq AND f.position >= 0
)
WHERE p.queue_id = :queue_id AND p.floor_seq < p.last_seq AND (:partition IS NULL OR p.name = :partition)
