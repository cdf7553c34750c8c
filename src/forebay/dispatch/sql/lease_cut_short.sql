-- A lease whose completion was refused ends now.
UPDATE forebay.parcel_leases
SET until_us = :now_us
WHERE lease_id = :lease_id AND until_us > :now_us
