-- Groups that have not popped since a time.
SELECT id, queue_id, name FROM groups WHERE last_active_us < :before_us
