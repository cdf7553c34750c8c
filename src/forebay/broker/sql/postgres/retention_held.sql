-- What unfinished parcels need of a queue: the first seq of it, the queue's first, and the last that is older than a time
-- if the one that is needed is.
SELECT held.seq, (SELECT min(m.seq) FROM forebay.messages m WHERE m.queue_id = %(queue_id)b::bigint),
    (
        SELECT forebay.first_seq_since(%(queue_id)b::bigint, %(before_us)b::bigint) - 1 WHERE held.seq IS NOT NULL
    )
FROM (SELECT min(seq) AS seq FROM forebay.parcel_holds WHERE queue_id = %(queue_id)b::bigint) held
