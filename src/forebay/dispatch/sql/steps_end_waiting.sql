-- Steps that wait warm end without a lease, each given as [did, step, state, error, QUEUED].
-- The state is given with each, so that the planner sees no use for an index on states, only for the primary key.
UPDATE forebay.parcel_flows AS s
SET state = k.value ->> 2, error = k.value ->> 3, due_us = NULL
FROM forebay.each(:steps) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint) AND s.state = k.value ->> 4
