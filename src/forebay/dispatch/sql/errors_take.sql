-- Errors that no on-error source has seen; kept from other servers until the transaction ends.
SELECT did, step
FROM forebay.parcel_errors
ORDER BY did, step
LIMIT :limit
--pg FOR UPDATE SKIP LOCKED
