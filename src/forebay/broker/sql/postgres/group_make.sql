-- A group's first pop on a queue decides where it starts.
INSERT INTO forebay.groups (queue_id, name, subscription_mode, subscription_from_us, start_seq, looked_seq, created_us,
    last_active_us)
SELECT queue_id, %(group)b::text, %(mode)b::text, %(from_us)b::bigint, start.seq, start.seq, now.us, now.us
FROM forebay.queues q
CROSS JOIN LATERAL (SELECT coalesce(%(now_us)b::bigint, forebay.now_us()) AS us) now
CROSS JOIN LATERAL (
    SELECT CASE %(mode)b::text
        WHEN 'all' THEN 0
        WHEN 'new' THEN q.next_seq - 1
        ELSE forebay.first_seq_since(q.queue_id, %(from_us)b::bigint) - 1
    END AS seq
) start
WHERE q.queue_id = %(queue_id)b::bigint AND q.name IS NOT NULL
ON CONFLICT (queue_id, name) DO NOTHING
