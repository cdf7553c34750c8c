-- Steps that are given to a worker, each given as [did, step, QUEUED]. One that does not wait any more is left as it is.
-- The state is given with each, so that the planner sees no use for an index on states, only for the primary key.
UPDATE forebay.parcel_flows AS s
SET state = 'LEASED', lease_id = :lease_id, attempts = s.attempts + 1
FROM forebay.each(:keys) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint) AND s.state = k.value ->> 2
RETURNING did, step
