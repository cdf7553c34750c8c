-- Warm parcels of paused flows make room in a class for those that may be leased.
UPDATE forebay.parcel_flows AS s
SET state = 'COLD_QUEUED'
FROM (SELECT w.did AS paused_did, w.step AS paused_step
      FROM forebay.dispatch_flows AS f
      JOIN forebay.parcel_flows AS w ON w.action_class = :action_class AND w.flow = f.flow AND w.state = 'QUEUED'
      WHERE f.state = 'PAUSED'
      ORDER BY w.place DESC, w.did DESC, w.step DESC
      LIMIT :parcels_max) AS paused
WHERE s.did = paused.paused_did AND s.step = paused.paused_step
RETURNING flow, place, did, step
