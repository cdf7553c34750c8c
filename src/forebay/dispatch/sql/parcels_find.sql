-- Parcels with the step that they have come to, newest first. Conditions that are not requested are left out. States of
-- which there are few among many begin from their own index (SQLite takes CROSS JOIN in the order as it is written).
SELECT p.did, p.flow, p.version, p.parent, p.queue, p.first_seq, p.last_seq, p.messages, p.size, p.place, p.state,
       p.annotations, p.created_us, p.updated_us, p.finished_us,
       COALESCE(s.step, 0), COALESCE(s.state, ''), COALESCE(s.action, ''), COALESCE(s.action_class, ''),
       COALESCE(s.attempts, 0), s.due_us, COALESCE(s.error, ''), COALESCE(l.worker, '')
FROM (SELECT p.*
--if anywhere FROM forebay.parcels AS p WHERE true
--if leased FROM forebay.parcel_leases AS y
--if leased CROSS JOIN forebay.parcel_flows AS x CROSS JOIN forebay.parcels AS p
--if leased WHERE x.lease_id = y.lease_id AND x.lease_id <> '' AND x.state = 'LEASED' AND p.did = x.did
--if queued FROM forebay.parcel_flows AS x CROSS JOIN forebay.parcels AS p WHERE x.state = 'QUEUED' AND p.did = x.did
--if joining FROM forebay.parcel_flows AS x CROSS JOIN forebay.parcels AS p WHERE x.state = 'JOINING' AND p.did = x.did
--if exporting FROM forebay.parcel_flows AS x CROSS JOIN forebay.parcels AS p WHERE x.state = 'EXPORTING' AND p.did = x.did
--if exactly AND p.did = :exactly
--if did AND p.did >= :did AND p.did < :did || '~'
--if flow AND p.flow = :flow
--if state AND p.state = :state
--if unfinished AND p.state IN ('IN_FLIGHT', 'ERROR')
--if since_us AND p.created_us >= :since_us
--if before_us AND p.created_us < :before_us
--if after_place AND p.place <= :after_place
--if after_did AND (p.place < :after_place OR p.did < :after_did)
--if of_step AND EXISTS (SELECT 1 FROM forebay.parcel_flows AS s WHERE s.did = p.did
--if of_step     AND s.step = (SELECT max(t.step) FROM forebay.parcel_flows AS t WHERE t.did = p.did)
--if step_state     AND s.state = :step_state
--if action     AND s.action = :action
--if action_class     AND s.action_class = :action_class
--if error     AND replace(s.error, :error, '') <> s.error
--if of_step )
      ORDER BY p.place DESC, p.did DESC
      LIMIT :limit) AS p
LEFT JOIN forebay.parcel_flows AS s
    ON s.did = p.did AND s.step = (SELECT max(t.step) FROM forebay.parcel_flows AS t WHERE t.did = p.did)
LEFT JOIN forebay.parcel_leases AS l ON l.lease_id = s.lease_id AND s.state = 'LEASED'
ORDER BY p.place DESC, p.did DESC
