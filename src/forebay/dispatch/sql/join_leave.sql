-- Members leave a join, each given as [did, step].
UPDATE forebay.parcel_flows AS s
SET state = :state, error = :error
FROM forebay.each(:steps) AS e
WHERE s.did = e.value ->> 0 AND s.step = CAST(e.value ->> 1 AS bigint) AND s.state = 'JOINING'
