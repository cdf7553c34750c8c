-- All queues with their options; without a name those that were deleted.
SELECT queue_id, name, options, coalesce(%(now_us)b::bigint, forebay.now_us()) FROM forebay.queues ORDER BY queue_id
