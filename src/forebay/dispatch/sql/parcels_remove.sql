-- Parcels that were finished long ago, each given as [did].
DELETE FROM forebay.parcels
WHERE did IN (SELECT e.value ->> 0 FROM forebay.each(:dids) AS e)
