-- Parcels that are worked on again, each given as [did].
UPDATE forebay.parcels AS p
SET state = 'IN_FLIGHT', updated_us = :now_us, finished_us = NULL
FROM forebay.each(:dids) AS k
WHERE p.did = k.value ->> 0
