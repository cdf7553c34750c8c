-- Lock the queues of a push. From here to the commit no other push gets a seq of them: commit order is seq order.
SELECT q.queue_id, q.name, (q.options ->> 'maxSize')::bigint, (q.options ->> 'encryptionEnabled')::boolean, q.next_seq,
    q.next_seq - 1 - q.removed,
    EXISTS (
        SELECT FROM forebay.waits w
        WHERE w.queue IN (q.name, '') AND w.server_id <> %(server_id)b::text AND w.until_us > forebay.now_us()
    )
FROM forebay.queues q
WHERE q.name = ANY (%(names)b::text[])
ORDER BY q.queue_id
FOR NO KEY UPDATE OF q
