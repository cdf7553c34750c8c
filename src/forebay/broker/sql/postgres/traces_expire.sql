-- Remove a bounded number of events that were noted too long ago, the oldest first, passing over those that another
-- server is removing.
DELETE FROM forebay.traces
WHERE trace_event_id = ANY (ARRAY(
    SELECT trace_event_id FROM forebay.traces
    WHERE created_us < coalesce(%(now_us)b::bigint, forebay.now_us()) - %(kept_us)b::bigint
    ORDER BY created_us LIMIT 1000 FOR UPDATE SKIP LOCKED
))
RETURNING trace_event_id
