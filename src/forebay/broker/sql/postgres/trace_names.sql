-- The names of events, with how many each has, and how many names there are.
SELECT named.name, count(*), count(*) OVER ()
FROM forebay.traces t
JOIN forebay.partitions p ON p.partition_id = t.partition_id
JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
CROSS JOIN LATERAL (SELECT DISTINCT unnest(t.names) COLLATE "C" AS name) named
GROUP BY named.name ORDER BY named.name LIMIT %(limit)b::bigint OFFSET %(offset)b::bigint
