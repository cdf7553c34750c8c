-- Steps that failed because too few came to their join wait for it again, each given as [did, step].
UPDATE forebay.parcel_flows AS s
SET state = 'JOINING', error = '', due_us = NULL, queued_us = :now_us
FROM forebay.each(:steps) AS e
WHERE s.did = e.value ->> 0 AND s.step = CAST(e.value ->> 1 AS bigint) AND s.state = 'ERROR'
