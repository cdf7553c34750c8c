-- Forget readers that were not heard of for longer than they asked for.
DELETE FROM forebay.holds WHERE until_us <= coalesce(%(now_us)b::bigint, forebay.now_us())
