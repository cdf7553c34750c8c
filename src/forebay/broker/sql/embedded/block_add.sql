-- A block of a partition: its place in the log, and how many messages came before it.
INSERT INTO blocks (partition_id, first_seq, last_seq, count, before, record_seq, position)
VALUES (?1, ?2, ?3, ?4, ?5 + (SELECT pushed FROM partitions WHERE id = ?1), ?6, ?7)
