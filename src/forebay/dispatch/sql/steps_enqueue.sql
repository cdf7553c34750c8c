-- Parcels come to a step, each given as [did, step, flow, flow_type, action, action_class, state, place, ranges,
-- messages, size].
INSERT INTO forebay.parcel_flows (did, step, flow, flow_type, action, action_class, state, place, ranges, messages, size,
                                  queued_us)
SELECT k.value ->> 0, CAST(k.value ->> 1 AS bigint), k.value ->> 2, k.value ->> 3, k.value ->> 4, k.value ->> 5,
       k.value ->> 6, CAST(k.value ->> 7 AS bigint), k.value ->> 8, CAST(k.value ->> 9 AS bigint),
       CAST(k.value ->> 10 AS bigint), CAST(:queued_us AS bigint)
FROM forebay.each(:steps) AS k
