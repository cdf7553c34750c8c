-- Forget what was committed long ago.
DELETE FROM forebay.queue_commits
WHERE created_us < coalesce(%(now_us)b::bigint, forebay.now_us()) - %(kept_us)b::bigint
