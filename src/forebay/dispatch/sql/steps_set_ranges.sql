-- What steps read from now on, each given as [did, step, ranges, messages].
UPDATE forebay.parcel_flows AS s
SET ranges = k.value ->> 2, messages = CAST(k.value ->> 3 AS bigint)
FROM forebay.each(:steps) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint)
