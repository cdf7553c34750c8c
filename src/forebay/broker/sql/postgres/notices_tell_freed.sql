-- Tell the servers that wait for these queues that a partition was given back there.
SELECT pg_notify(%(channel)b::text, %(server_id)b::text || ' 1 ' || given.queue)
FROM unnest(%(queues)b::text[]) AS given (queue)
WHERE EXISTS (
    SELECT FROM forebay.waits w
    WHERE w.queue IN (given.queue, '') AND w.server_id <> %(server_id)b::text AND w.until_us > forebay.now_us()
)
