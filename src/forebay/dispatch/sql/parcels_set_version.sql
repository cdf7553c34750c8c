-- Parcels go on under another version of their flow, each given as [did, version].
UPDATE forebay.parcels AS p
SET version = CAST(k.value ->> 1 AS bigint)
FROM forebay.each(:parcels) AS k
WHERE p.did = k.value ->> 0
