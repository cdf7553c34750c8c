-- Steps as they stand, each given as [did, step], before some of them are queued again.
SELECT s.did, s.step, s.flow, s.action, s.action_class, s.state, s.place, s.attempts, s.lease_id
FROM forebay.each(:keys) AS k
JOIN forebay.parcel_flows AS s ON s.did = k.value ->> 0 AND s.step = CAST(k.value ->> 1 AS bigint)
