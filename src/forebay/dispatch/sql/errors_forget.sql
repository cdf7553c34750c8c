-- Errors that all on-error sources have seen, each given as [did, step].
DELETE FROM forebay.parcel_errors
WHERE (did, step) IN (SELECT e.value ->> 0, CAST(e.value ->> 1 AS bigint) FROM forebay.each(:steps) AS e)
