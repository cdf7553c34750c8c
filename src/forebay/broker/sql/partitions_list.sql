-- The partitions of a queue by name.
SELECT p.name, p.queue_id, p.partition_id, p.last_position - p.removed_position, p.last_seq, p.newest_us
FROM forebay.partitions p WHERE p.queue_id = %(queue_id)b::bigint
ORDER BY p.name LIMIT %(limit)b::bigint OFFSET %(offset)b::bigint
