-- The partitions of a queue by name.
SELECT p.name, p.queue_id, p.partition_id, p.last_position - p.removed_position - (
        SELECT count(*) FROM forebay.deleted_messages x WHERE x.partition_id = p.partition_id AND x.seq > p.removed_seq
    ), p.last_seq, p.newest_us
FROM forebay.partitions p WHERE p.queue_id = %(queue_id)b::bigint
ORDER BY p.name LIMIT %(limit)b::bigint OFFSET %(offset)b::bigint
