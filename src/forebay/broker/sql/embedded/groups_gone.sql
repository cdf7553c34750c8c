-- Numbers of groups that are not there and have states. It looks at one state of each group.
WITH RECURSIVE known AS (
    SELECT min(group_id) AS id FROM states
    UNION ALL
    SELECT (SELECT min(s.group_id) FROM states s WHERE s.group_id > known.id) FROM known WHERE known.id IS NOT NULL
)
SELECT id FROM known WHERE id IS NOT NULL AND id NOT IN (SELECT id FROM groups)
