-- A partition is made. One that was removed goes on behind its last seq.
INSERT INTO partitions (queue_id, name, floor_seq)
VALUES (?1, ?2, coalesce((SELECT floor_seq FROM removed_partitions WHERE queue_id = ?1 AND name = ?2), 0))
