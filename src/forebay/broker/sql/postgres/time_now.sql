-- The time by which everything is judged.
SELECT coalesce(%(now_us)b::bigint, forebay.now_us())
