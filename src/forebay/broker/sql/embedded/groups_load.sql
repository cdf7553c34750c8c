-- Groups of a queue.
SELECT id, name, start_seq FROM groups WHERE queue_id = ?
