-- Look at a bounded number of partitions of a queue, in the order of their names: which hold no message and got none
-- since a time? With the last name looked at, and how many groups the queue has.
SELECT max(p.name), array_agg(p.partition_id) FILTER (WHERE p.is_empty),
    (SELECT count(*) FROM forebay.groups g WHERE g.queue_id = %(queue_id)b::bigint)
FROM (
    SELECT name, partition_id, newest_us < %(before_us)b::bigint
        AND NOT EXISTS (SELECT FROM forebay.messages m WHERE m.partition_id = found.partition_id) AS is_empty
    FROM forebay.partitions found
    WHERE queue_id = %(queue_id)b::bigint AND name > %(after)b::text ORDER BY name LIMIT 500
) p
