-- The states of groups that have messages under way, of all queues or of one.
SELECT s.group_id, s.partition_id, s.state
FROM states s
WHERE s.has_pending AND (:queue_id IS NULL OR s.group_id IN (SELECT id FROM groups WHERE queue_id = :queue_id))
