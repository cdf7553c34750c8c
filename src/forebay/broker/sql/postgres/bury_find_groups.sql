-- Where every group of a queue stands in one partition, and the time; one row without a group if there is none.
SELECT g.name, coalesce(d.state, ''::bytea), coalesce(d.cursor_seq, g.start_seq, 0),
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM (SELECT 1) one
LEFT JOIN forebay.groups g ON g.queue_id = %(queue_id)b::bigint
LEFT JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = %(partition_id)b::bigint
ORDER BY g.name
