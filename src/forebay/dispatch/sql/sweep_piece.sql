-- The lowest message that a flow's unfinished steps between two places read, by queue and its identity.
SELECT r.value ->> 0 AS queue, COALESCE(r.value ->> 3, '') AS identity, min(CAST(r.value ->> 1 AS bigint))
FROM forebay.parcel_flows AS s, forebay.each(s.ranges) AS r
WHERE s.flow = :flow AND s.place BETWEEN :bottom AND :top
    AND s.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED', 'JOINING', 'EXPORTING', 'ERROR')
GROUP BY 1, 2
