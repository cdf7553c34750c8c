-- What a queue knows of the messages of a partition that is removed.
UPDATE queues
SET gone_pushed = gone_pushed + ?, gone_seq = max(gone_seq, (SELECT floor_seq FROM partitions WHERE id = ?))
WHERE id = ?
