-- Leases that have ended, the longest ended first. One whose heartbeat lies further in the future than it lasts was given
-- before the clock was set back, and would otherwise last until that time comes again.
SELECT lease_id
FROM forebay.parcel_leases
WHERE until_us <= :now_us OR beat_us > :now_us + until_us - beat_us
ORDER BY until_us
LIMIT :leases_max
