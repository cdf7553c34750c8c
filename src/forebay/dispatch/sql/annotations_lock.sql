-- The annotations of parcels, each given as [did], before they are added to.
SELECT did, annotations
FROM forebay.parcels
WHERE did IN (SELECT k.value ->> 0 FROM forebay.each(:dids) AS k)
ORDER BY did
--pg FOR UPDATE
