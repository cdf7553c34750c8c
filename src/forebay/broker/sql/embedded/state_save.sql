-- How a group stands in a partition.
INSERT INTO states (group_id, partition_id, cursor_seq, lease_id, state, has_pending)
VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (group_id, partition_id)
DO UPDATE
SET cursor_seq = excluded.cursor_seq, lease_id = excluded.lease_id, state = excluded.state, has_pending =
    excluded.has_pending
