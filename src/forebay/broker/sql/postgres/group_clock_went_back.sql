-- The clock was set back. What was planned by the old one is looked at now, and planned again.
UPDATE forebay.deliveries SET due_us = %(now_us)b::bigint
WHERE (group_id, partition_id) IN (
    SELECT group_id, partition_id FROM forebay.deliveries
    WHERE group_id = %(group_id)b::bigint AND due_us > %(now_us)b::bigint
    ORDER BY group_id, partition_id FOR UPDATE
)
