-- A group stands at one place in all partitions of a queue, or in one; a piece by number. NOT INDEXED: in order.
INSERT OR REPLACE INTO states (group_id, partition_id, cursor_seq, lease_id, state, has_pending)
SELECT :group_id, id, :cursor_seq, '', :state, 0
FROM partitions NOT INDEXED
WHERE id BETWEEN :first_id AND :last_id AND queue_id = :queue_id AND (:name IS NULL OR name = :name)
