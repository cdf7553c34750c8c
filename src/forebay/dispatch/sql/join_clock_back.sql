-- Parcels that have entered a join later than now: the clock was set back, and they have waited since now at the latest.
UPDATE forebay.parcel_flows
SET queued_us = :now_us
WHERE state = 'JOINING' AND queued_us > :now_us
