-- A partition is made. One that was removed goes on behind its last seq.
INSERT INTO partitions (queue_id, name, floor_seq)
VALUES (:queue_id, :name, coalesce((SELECT floor_seq FROM removed_partitions WHERE queue_id = :queue_id AND name = :name), 0))
