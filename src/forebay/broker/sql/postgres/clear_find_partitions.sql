-- Partitions of a queue, or one of them, that hold messages: a bounded number in the order of their names, with the last
-- message of each, and the time.
SELECT p.name, p.partition_id, p.last_seq, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.partitions p
WHERE p.queue_id = %(queue_id)b::bigint AND p.name > %(after)b::text AND p.removed_seq < p.last_seq
    AND (%(partition)b::text IS NULL OR p.name = %(partition)b::text)
ORDER BY p.name LIMIT 500
