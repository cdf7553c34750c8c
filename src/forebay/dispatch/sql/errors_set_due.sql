-- When errors are queued again by themselves, each given as [did, step, due_us].
UPDATE forebay.parcel_flows AS s
SET due_us = CAST(e.value ->> 2 AS bigint), failed_us = :now_us
FROM forebay.each(:steps) AS e
WHERE s.did = e.value ->> 0 AND s.step = CAST(e.value ->> 1 AS bigint) AND s.state = 'ERROR' AND s.due_us IS NULL
RETURNING did
