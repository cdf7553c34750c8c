-- Errors of parcels that are removed, if no source has seen them, each given as [did].
DELETE FROM forebay.parcel_errors
WHERE did IN (SELECT e.value ->> 0 FROM forebay.each(:dids) AS e)
