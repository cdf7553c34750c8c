-- What is left in token buckets, each given as [name, tokens, updated_us].
INSERT INTO forebay.rate_buckets (name, tokens, updated_us)
SELECT k.value ->> 0, CAST(k.value ->> 1 AS double precision), CAST(k.value ->> 2 AS bigint)
FROM forebay.each(:buckets) AS k
WHERE true
ORDER BY 1
ON CONFLICT (name) DO UPDATE SET tokens = excluded.tokens, updated_us = excluded.updated_us
