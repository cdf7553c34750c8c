-- Transactions whose records of a queue are all before a seq.
SELECT tag FROM tagged_records WHERE queue_id = ? AND last_seq < ? LIMIT ?
