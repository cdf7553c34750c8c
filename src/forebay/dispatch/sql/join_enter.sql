-- Parcels wait for a join, each [did, step, flow, flow_type, action, action_class, place, ranges, messages, size, key].
INSERT INTO forebay.parcel_flows (did, step, flow, flow_type, action, action_class, state, place, ranges, messages, size,
                                  queued_us, join_key)
SELECT e.value ->> 0, CAST(e.value ->> 1 AS bigint), e.value ->> 2, e.value ->> 3, e.value ->> 4, e.value ->> 5,
       'JOINING', CAST(e.value ->> 6 AS bigint), e.value ->> 7, CAST(e.value ->> 8 AS bigint),
       CAST(e.value ->> 9 AS bigint), CAST(:queued_us AS bigint), e.value ->> 10
FROM forebay.each(:steps) AS e
