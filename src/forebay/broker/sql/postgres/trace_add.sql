-- Note what happened to a message. Nothing when its queue is gone.
INSERT INTO forebay.traces (partition_id, transaction_id, group_name, event_type, names, data, created_us)
SELECT p.partition_id, %(transaction_id)b::text, %(group)b::text, %(event_type)b::text, %(names)b::text[],
    %(data)b::bytea, %(created_us)b::bigint
FROM forebay.partitions p JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
WHERE p.partition_id = %(partition_id)b::bigint
