-- Some partitions of a queue that was deleted.
SELECT partition_id FROM forebay.partitions WHERE queue_id = %(queue_id)b::bigint ORDER BY name LIMIT 500
