-- A lease ends with its completion; nothing if it has ended before.
DELETE FROM forebay.parcel_leases
WHERE lease_id = :lease_id AND until_us > :now_us
RETURNING worker, started_us
