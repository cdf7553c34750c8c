-- Lock a queue that was deleted; no row when it is gone altogether.
SELECT queue_id FROM forebay.queues WHERE queue_id = %(queue_id)b::bigint AND name IS NULL FOR NO KEY UPDATE
