-- The history of parcels that are removed, each given as [did].
DELETE FROM forebay.parcel_events
WHERE did IN (SELECT e.value ->> 0 FROM forebay.each(:dids) AS e)
