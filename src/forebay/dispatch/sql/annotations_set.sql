-- Annotations of parcels, each given as [did, annotations].
UPDATE forebay.parcels AS p
SET annotations = k.value ->> 1
FROM forebay.each(:parcels) AS k
WHERE p.did = k.value ->> 0
