-- The steps of leases, each given as [lease], and those that a lease has finished.
SELECT s.did, s.step, s.flow, s.action, s.action_class, s.state, s.place, s.attempts, s.lease_id, s.ranges, s.messages,
       s.size, p.version
FROM forebay.each(:leases) AS k
JOIN forebay.parcel_flows AS s ON s.lease_id = k.value ->> 0 AND s.lease_id <> ''
JOIN forebay.parcels AS p ON p.did = s.did
