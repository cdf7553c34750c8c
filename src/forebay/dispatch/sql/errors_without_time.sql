-- Errors that nothing queues again by itself, of a flow, of an action, or with a text, where these are given.
SELECT s.did, s.step, s.flow, p.version, s.action, s.error, s.attempts
FROM forebay.parcels AS p
JOIN forebay.parcel_flows AS s ON s.did = p.did
WHERE p.state = 'ERROR' AND s.state = 'ERROR' AND s.due_us IS NULL AND s.join_key = ''
    AND (:flow = '' OR p.flow = :flow) AND (:action = '' OR s.action = :action)
    AND (:error = '' OR replace(s.error, :error, '') <> s.error)
ORDER BY p.place
LIMIT :limit
