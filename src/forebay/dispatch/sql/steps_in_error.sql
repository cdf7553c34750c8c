-- Which of these steps are in ERROR, each given as [did, step].
SELECT s.did, s.step, s.action, s.join_key
FROM forebay.each(:steps) AS e
JOIN forebay.parcel_flows AS s ON s.did = e.value ->> 0 AND s.step = CAST(e.value ->> 1 AS bigint)
WHERE s.state = 'ERROR'
