-- Holds that a sweep found to be lower than needed, each given as [queue_id, flow, seq].
UPDATE forebay.parcel_holds AS h
SET seq = CAST(e.value ->> 2 AS bigint)
FROM forebay.each(:holds) AS e
WHERE h.queue_id = CAST(e.value ->> 0 AS bigint) AND h.flow = e.value ->> 1 AND h.seq < CAST(e.value ->> 2 AS bigint)
