-- A lease is given back, or refused: it ends whatever its time.
DELETE FROM forebay.parcel_leases
WHERE lease_id = :lease_id
RETURNING worker, started_us
