-- Parcels that a parcel was split or replayed into, or that were made because it failed.
SELECT did
FROM forebay.parcels
WHERE parent = :did AND parent <> ''
ORDER BY place, did
LIMIT 1000
