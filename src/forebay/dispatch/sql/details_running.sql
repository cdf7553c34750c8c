-- Parcels under leases whose workers were heard since a time, the longest running first.
SELECT s.action_class, s.flow, s.action, s.did, l.started_us, l.worker, l.beat_us
FROM forebay.parcel_leases AS l
JOIN forebay.parcel_flows AS s ON s.lease_id = l.lease_id AND s.lease_id <> '' AND s.state = 'LEASED'
WHERE l.beat_us >= :since_us
ORDER BY l.started_us, s.place, s.did
LIMIT :limit
