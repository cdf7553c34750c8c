-- Cold parcels become warm, each given as [did, step, COLD_QUEUED].
-- The state is given with each, so that the planner sees no use for an index on states, only for the primary key.
UPDATE forebay.parcel_flows AS s
SET state = 'QUEUED'
FROM forebay.each(:keys) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint) AND s.state = k.value ->> 2
RETURNING flow, place, did, step
