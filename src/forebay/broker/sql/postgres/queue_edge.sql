-- Where a queue's log begins and ends: every message before its end is committed. And when it was made.
SELECT q.queue_id,
    coalesce((SELECT m.seq FROM forebay.messages m WHERE m.queue_id = q.queue_id ORDER BY m.seq LIMIT 1), q.next_seq),
    q.next_seq, q.created_us
FROM forebay.queues q WHERE q.name = %(queue)b::text
