-- A lease finishes steps, each given as [did, step, state, error, due_us, lease, LEASED]. One that is not the lease's any more is left out.
-- The state is given with each, so that the planner sees no use for an index on states, only for the primary key.
UPDATE forebay.parcel_flows AS s
SET state = k.value ->> 2, error = k.value ->> 3, due_us = CAST(k.value ->> 4 AS bigint),
    failed_us = CASE WHEN k.value ->> 4 IS NOT NULL THEN CAST(:now_us AS bigint) END
FROM forebay.each(:steps) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint)
    AND s.lease_id = k.value ->> 5 AND s.state = k.value ->> 6
RETURNING did, step
