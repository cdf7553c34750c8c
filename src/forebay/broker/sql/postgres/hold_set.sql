-- Note where a reader stands, and until when what it has not read is spared. Was it, until now? No row: no such queue.
WITH found AS (
    SELECT q.queue_id, coalesce(%(now_us)b::bigint, forebay.now_us()) AS now_us FROM forebay.queues q
    WHERE q.name = %(queue)b::text
), before AS (
    SELECT h.until_us FROM forebay.holds h JOIN found ON found.queue_id = h.queue_id WHERE h.reader = %(reader)b::text
), noted AS (
    INSERT INTO forebay.holds (queue_id, reader, seq, until_us)
    SELECT queue_id, %(reader)b::text, %(seq)b::bigint, now_us + %(held_us)b::bigint FROM found
    ON CONFLICT (queue_id, reader) DO UPDATE SET seq = excluded.seq, until_us = excluded.until_us
)
SELECT coalesce((SELECT until_us FROM before) > now_us, false) FROM found
