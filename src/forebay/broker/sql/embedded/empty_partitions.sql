-- Partitions that hold no message and got none since a time. A group that stands at 2^53 is for other partitions only.
SELECT p.id, p.queue_id, p.name, p.last_seq, p.pushed
FROM partitions p
JOIN queues q ON q.id = p.queue_id
WHERE
    p.pushed = p.removed AND p.newest_us < :before_us
    AND NOT EXISTS (SELECT 1 FROM dead_letters d WHERE d.partition_id = p.id)
    AND NOT EXISTS (SELECT 1 FROM traces t WHERE t.partition_id = p.id)
    AND NOT EXISTS (SELECT 1 FROM lost_messages l WHERE l.queue_id = p.queue_id AND l.partition_id = p.id)
    AND NOT EXISTS (
        SELECT 1 FROM states s
        WHERE s.partition_id = p.id AND s.cursor_seq > q.indexed_seq AND s.cursor_seq < 9007199254740991
    )
