-- Parcels that these were sent again into, each given as [did], and which records each is of; NULL: all of them.
SELECT p.parent, (SELECT v.text FROM forebay.parcel_events AS v WHERE v.did = p.did AND v.event = 'RECORDS')
FROM forebay.each(:dids) AS k
JOIN forebay.parcels AS p ON p.parent = k.value ->> 0 AND p.parent <> ''
