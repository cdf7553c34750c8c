-- Up to where a queue has records of a transaction.
INSERT INTO tagged_records (tag, queue_id, last_seq) VALUES (?, ?, ?)
