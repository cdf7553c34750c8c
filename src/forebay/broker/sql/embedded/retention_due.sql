-- Partitions of a queue with messages to remove: those that are too old, or finished by every group and old enough.
SELECT * FROM ({retention_fronts}) WHERE first_seq <= max(:old_seq, min(done_seq, :done_seq))
