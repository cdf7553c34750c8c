-- Up to where a queue's log is in the index, when it is opened.
SELECT indexed_seq FROM queues WHERE id = ?
