-- Leases end, each given as [lease], if their time is up.
DELETE FROM forebay.parcel_leases
WHERE lease_id IN (SELECT k.value ->> 0 FROM forebay.each(:leases) AS k)
    AND (until_us <= :now_us OR beat_us > :now_us + until_us - beat_us)
RETURNING lease_id, worker, started_us
