-- Messages that wait for the group that is furthest behind; no row where there is no group.
SELECT sum(messages)::bigint FROM forebay.waiting WHERE queue_id = %(queue_id)b::bigint
GROUP BY group_id ORDER BY 1 DESC LIMIT 1
