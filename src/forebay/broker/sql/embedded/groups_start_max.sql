-- The furthest that a group of a queue begins.
SELECT max(start_seq) FROM groups WHERE queue_id = ?
