-- A group stands at one place in all partitions of a queue, or in one; a piece by number. NOT INDEXED: in order.
INSERT OR REPLACE INTO states (group_id, partition_id, cursor_seq, lease_id, state, has_pending)
SELECT ?1, id, ?2, '', ?3, 0
FROM partitions NOT INDEXED
WHERE id BETWEEN ?6 AND ?7 AND queue_id = ?4 AND (?5 IS NULL OR name = ?5)
