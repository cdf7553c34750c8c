-- Lock a queue's group and find the seq behind which it is to start.
SELECT g.group_id, CASE
    WHEN %(seq)b::bigint IS NOT NULL THEN %(seq)b::bigint - 1
    WHEN %(time_us)b::bigint IS NOT NULL THEN forebay.first_seq_since(q.queue_id, %(time_us)b::bigint) - 1
    ELSE q.next_seq - 1 END, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.groups g
JOIN forebay.queues q ON q.queue_id = g.queue_id
WHERE g.queue_id = %(queue_id)b::bigint AND g.name = %(group)b::text
FOR NO KEY UPDATE OF g
