-- Spare a queue's messages from a seq on, for a flow; a lower hold stays. Each is given as [queue_id, flow, seq].
INSERT INTO forebay.parcel_holds AS h (queue_id, flow, seq)
SELECT CAST(e.value ->> 0 AS bigint), e.value ->> 1, CAST(e.value ->> 2 AS bigint)
FROM forebay.each(:holds) AS e
WHERE true
ON CONFLICT (queue_id, flow) DO UPDATE SET seq = excluded.seq
WHERE h.seq > excluded.seq
