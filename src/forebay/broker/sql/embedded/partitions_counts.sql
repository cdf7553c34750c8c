-- What partitions of a queue hold, a piece by number. NOT INDEXED: the numbers are in order as they are.
SELECT id, pushed, removed FROM partitions NOT INDEXED WHERE queue_id = ? AND id > ? ORDER BY id LIMIT ?
