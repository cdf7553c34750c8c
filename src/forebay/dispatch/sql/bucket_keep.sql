-- What is left in a rate limit's bucket.
INSERT INTO forebay.rate_buckets (name, tokens, updated_us)
VALUES (:name, :tokens, :updated_us)
ON CONFLICT (name) DO UPDATE SET tokens = excluded.tokens, updated_us = excluded.updated_us
