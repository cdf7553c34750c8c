-- The members of parcels that were joined, as JSON, each given as [did].
SELECT v.did, v.text
FROM forebay.each(:dids) AS e
JOIN forebay.parcel_events AS v ON v.did = e.value ->> 0 AND v.event = 'JOIN'
