-- Transactions with records in a queue.
SELECT tag FROM tagged_records WHERE queue_id = ? LIMIT ?
