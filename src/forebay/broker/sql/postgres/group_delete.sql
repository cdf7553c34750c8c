-- Forget a group, on one queue or all, or only if it has not popped since a time; its deliveries go with it. Returns how many there were.
WITH chosen AS (
    SELECT g.group_id FROM forebay.groups g JOIN forebay.queues q ON q.queue_id = g.queue_id
    WHERE g.name = %(group)b::text AND (%(queue)b::text IS NULL OR q.name = %(queue)b::text)
        AND (%(before_us)b::bigint IS NULL OR g.last_active_us < %(before_us)b::bigint)
    ORDER BY g.group_id FOR UPDATE OF g
), known AS (
    SELECT d.group_id, d.partition_id FROM forebay.deliveries d JOIN chosen ON chosen.group_id = d.group_id
    ORDER BY d.group_id, d.partition_id FOR UPDATE OF d
), gone AS (
    DELETE FROM forebay.groups g USING chosen WHERE g.group_id = chosen.group_id RETURNING g.group_id
)
SELECT (SELECT count(*) FROM known), (SELECT count(*) FROM gone)
