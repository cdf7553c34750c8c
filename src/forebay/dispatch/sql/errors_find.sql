-- What failed, each given as [did, step]; a step that was resumed or cancelled meanwhile is left out.
SELECT s.did, s.flow, s.action, s.error, s.ranges, s.messages, s.size
FROM forebay.each(:steps) AS e
JOIN forebay.parcel_flows AS s ON s.did = e.value ->> 0 AND s.step = CAST(e.value ->> 1 AS bigint)
WHERE s.state = 'ERROR'
ORDER BY s.place, s.did
