-- Steps are queued again at their old place, each given as [did, step, old state, old lease, new state, attempts]. One that
-- was moved or leased meanwhile is left as it is.
UPDATE forebay.parcel_flows AS s
SET state = k.value ->> 4, attempts = CAST(k.value ->> 5 AS bigint), lease_id = '', due_us = NULL, error = '',
    queued_us = :queued_us
FROM forebay.each(:steps) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint)
    AND s.state = k.value ->> 2 AND s.lease_id = k.value ->> 3
RETURNING did, step
