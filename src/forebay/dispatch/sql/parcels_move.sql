-- What became of parcels, each given as [did, state].
UPDATE forebay.parcels AS p
SET state = k.value ->> 1, updated_us = :now_us,
    finished_us = CASE WHEN k.value ->> 1 IN ('COMPLETE', 'FILTERED', 'CANCELLED') THEN CAST(:now_us AS bigint) END
FROM forebay.each(:parcels) AS k
WHERE p.did = k.value ->> 0
