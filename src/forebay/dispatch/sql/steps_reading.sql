-- Unfinished steps of a flow that read a queue, and do not know which one of its name: an older Forebay has cut them.
SELECT s.did, s.step, s.action_class
FROM forebay.parcel_flows AS s
WHERE s.flow = :flow AND s.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED', 'JOINING', 'EXPORTING', 'ERROR')
    AND EXISTS (SELECT 1 FROM forebay.each(s.ranges) AS r
                WHERE r.value ->> 0 = :queue AND COALESCE(r.value ->> 3, '') = '')
LIMIT :limit
