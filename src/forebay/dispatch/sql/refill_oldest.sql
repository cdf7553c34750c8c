-- The oldest cold parcels of a class become warm.
UPDATE forebay.parcel_flows AS s
SET state = 'QUEUED'
FROM (SELECT c.did AS oldest_did, c.step AS oldest_step
      FROM forebay.parcel_flows AS c
      WHERE c.action_class = :action_class AND c.state = 'COLD_QUEUED'
      ORDER BY c.place, c.did, c.step
      LIMIT :parcels_max) AS oldest
WHERE s.did = oldest.oldest_did AND s.step = oldest.oldest_step
RETURNING flow, place, did, step
