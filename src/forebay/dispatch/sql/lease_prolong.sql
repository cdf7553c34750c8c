-- A lease lasts from now on as long as it was to last when it began; nothing if it has ended.
UPDATE forebay.parcel_leases
SET until_us = :now_us + until_us - beat_us, beat_us = :now_us
WHERE lease_id = :lease_id AND until_us > :now_us
RETURNING until_us
