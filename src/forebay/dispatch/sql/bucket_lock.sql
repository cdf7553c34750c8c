-- A rate limit's bucket; others wait for it until the transaction ends.
SELECT CAST(tokens AS text), updated_us
FROM forebay.rate_buckets
WHERE name = :name
--pg FOR UPDATE
