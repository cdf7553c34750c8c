-- Parcels that were finished before a time, oldest first.
SELECT did
FROM forebay.parcels
WHERE finished_us < :before_us
ORDER BY finished_us
LIMIT :limit
--pg FOR UPDATE SKIP LOCKED
