-- Steps that wait warm, of those given as [did, step, QUEUED], with what decides whether they may be leased.
-- The state is given with each, so that the planner sees no use for an index on states, only for the primary key.
SELECT s.did, s.step, s.flow, s.action, s.action_class, s.place, s.attempts, s.ranges, s.messages, s.size, p.version,
       COALESCE(f.state, 'RUNNING'), COALESCE(f.version, p.version)
FROM forebay.each(:keys) AS k
JOIN forebay.parcel_flows AS s ON s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint)
JOIN forebay.parcels AS p ON p.did = s.did
LEFT JOIN forebay.dispatch_flows AS f ON f.flow = s.flow
WHERE s.state = k.value ->> 2
