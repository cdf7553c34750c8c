-- Steps that wait for nothing any more are complete, each given as [did, step, EXPORTING].
-- The state is given with each, so that the planner sees no use for an index on states, only for the primary key.
UPDATE forebay.parcel_flows AS s
SET state = 'COMPLETE'
FROM forebay.each(:steps) AS k
WHERE s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint) AND s.state = k.value ->> 2
    AND NOT EXISTS (SELECT 1 FROM forebay.parcel_awaits AS a WHERE a.did = s.did AND a.step = s.step)
RETURNING did, step
