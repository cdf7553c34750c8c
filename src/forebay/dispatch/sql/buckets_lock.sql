-- Token buckets, each given as [name]; other servers wait until the transaction ends.
SELECT name, CAST(tokens AS text), updated_us
FROM forebay.rate_buckets
WHERE name IN (SELECT k.value ->> 0 FROM forebay.each(:names) AS k)
ORDER BY name
--pg FOR UPDATE
