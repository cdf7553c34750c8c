-- Queues that are gone, of which a table still has rows.
SELECT DISTINCT queue_id FROM {table} WHERE queue_id NOT IN (SELECT id FROM queues)
