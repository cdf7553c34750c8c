-- Up to where a queue's log is in the index.
UPDATE queues SET indexed_seq = ? WHERE id = ?
