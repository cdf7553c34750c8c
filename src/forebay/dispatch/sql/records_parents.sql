-- Parcels that records were in, each given as [did].
SELECT p.did, p.flow, p.version
FROM forebay.each(:dids) AS k
JOIN forebay.parcels AS p ON p.did = k.value ->> 0
