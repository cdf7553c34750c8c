-- Remove stages that were not committed in time.
DELETE FROM forebay.stages
WHERE created_us < coalesce(%(now_us)b::bigint, forebay.now_us()) - %(kept_us)b::bigint
RETURNING stage_id
