-- Unfinished steps end for good and leave their leases, each given as [did, step].
UPDATE forebay.parcel_flows AS s
SET state = 'CANCELLED', lease_id = '', due_us = NULL
FROM forebay.each(:steps) AS e
WHERE s.did = e.value ->> 0 AND s.step = CAST(e.value ->> 1 AS bigint)
    AND s.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED', 'JOINING', 'EXPORTING', 'ERROR')
RETURNING did, step, action, action_class, flow, place
