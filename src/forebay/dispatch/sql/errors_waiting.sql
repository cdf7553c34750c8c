-- Whether there are errors that no on-error source has seen.
SELECT 1 FROM forebay.parcel_errors LIMIT 1
