-- Token buckets that were not there yet, each given as [name, tokens, updated_us]: a row that others can wait for.
INSERT INTO forebay.rate_buckets (name, tokens, updated_us)
SELECT k.value ->> 0, CAST(k.value ->> 1 AS double precision), CAST(k.value ->> 2 AS bigint)
FROM forebay.each(:buckets) AS k
WHERE true
ORDER BY 1
ON CONFLICT (name) DO NOTHING
