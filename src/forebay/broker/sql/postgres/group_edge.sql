-- How far a group is in a partition: the first message that it has not passed, or the end of the queue where there is none.
SELECT q.queue_id, CASE WHEN g.group_id IS NOT NULL THEN coalesce(
    (SELECT m.seq FROM forebay.messages m
     WHERE m.partition_id = p.partition_id AND m.seq > coalesce(d.cursor_seq, g.start_seq) ORDER BY m.seq LIMIT 1),
    q.next_seq) END
FROM forebay.queues q
LEFT JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = %(group)b::text
LEFT JOIN forebay.partitions p ON p.queue_id = q.queue_id AND p.name = %(partition)b::text
LEFT JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id
WHERE q.name = %(queue)b::text
