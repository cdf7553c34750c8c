-- The group is alive. Written by one pop per second, so that pops do not wait for each other here.
UPDATE forebay.groups SET last_active_us = %(now_us)b::bigint
WHERE group_id = (SELECT group_id FROM forebay.groups WHERE group_id = %(group_id)b::bigint FOR NO KEY UPDATE SKIP LOCKED)
