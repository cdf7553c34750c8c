-- What a parcel began with: its first step.
SELECT p.flow, p.version, s.step, s.ranges, s.messages, s.size, p.annotations
FROM forebay.parcels AS p
JOIN forebay.parcel_flows AS s ON s.did = p.did
WHERE p.did = :did
ORDER BY s.step
LIMIT 1
