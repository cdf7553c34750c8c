-- Forget readers that have not called for longer than they requested.
DELETE FROM forebay.holds WHERE until_us <= coalesce(%(now_us)b::bigint, forebay.now_us())
