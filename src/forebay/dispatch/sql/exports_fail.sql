-- Steps whose export cannot be confirmed any more, each given as [did, step, EXPORTING, error].
UPDATE forebay.parcel_flows AS s
SET state = 'ERROR', error = k.value ->> 3
FROM forebay.each(:steps) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint) AND s.state = k.value ->> 2
RETURNING did, step
