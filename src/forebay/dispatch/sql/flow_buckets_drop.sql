-- The rate limits of a forgotten flow and of its source.
DELETE FROM forebay.rate_buckets WHERE name IN ('flow:' || :flow, 'source:' || :flow)
