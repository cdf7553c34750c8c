-- The first and the last message of a queue that every group has finished.
SELECT min(first_seq), max(done_seq) FROM ({retention_fronts}) WHERE first_seq <= done_seq
