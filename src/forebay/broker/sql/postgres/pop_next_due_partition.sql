-- How long until one partition is due for a group; no row, or NULL, when it does not wait for its time.
SELECT d.due_us - coalesce(%(now_us)b::bigint, forebay.now_us())
FROM forebay.queues q
JOIN forebay.groups g ON g.queue_id = q.queue_id AND g.name = %(group)b::text
JOIN forebay.partitions p ON p.queue_id = q.queue_id AND p.name = %(partition)b::text
JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id
WHERE q.name = %(queue)b::text
