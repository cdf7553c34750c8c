-- Make partitions; the queue's lock keeps others from making the same.
INSERT INTO forebay.partitions (queue_id, name, last_seq, last_position, newest_us)
SELECT queue_id, name, 0, 0, 0
FROM unnest(%(queue_ids)b::bigint[], %(names)b::text[]) AS given (queue_id, name)
ORDER BY queue_id, name
RETURNING queue_id, name, partition_id
