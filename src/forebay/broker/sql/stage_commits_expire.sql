-- Forget epochs that were committed long ago.
DELETE FROM forebay.stage_commits
WHERE created_us < coalesce(%(now_us)b::bigint, forebay.now_us()) - %(kept_us)b::bigint
