-- How many partitions a queue has.
SELECT count(*) FROM forebay.partitions WHERE queue_id = %(queue_id)b::bigint
