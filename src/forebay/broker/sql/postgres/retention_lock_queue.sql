-- Lock a queue: while messages are removed, none are added.
SELECT queue_id FROM forebay.queues WHERE queue_id = %(queue_id)b::bigint AND name IS NOT NULL FOR NO KEY UPDATE
