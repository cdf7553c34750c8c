-- New parcels, each [did, flow, version, parent, queue, first_seq, last_seq, messages, size, place, annotations].
INSERT INTO forebay.parcels (did, flow, version, parent, queue, first_seq, last_seq, messages, size, place, state,
                             annotations, created_us, updated_us)
SELECT e.value ->> 0, e.value ->> 1, CAST(e.value ->> 2 AS bigint), e.value ->> 3, e.value ->> 4,
       CAST(e.value ->> 5 AS bigint), CAST(e.value ->> 6 AS bigint), CAST(e.value ->> 7 AS bigint),
       CAST(e.value ->> 8 AS bigint), CAST(e.value ->> 9 AS bigint), 'IN_FLIGHT', e.value ->> 10,
       CAST(:now_us AS bigint), CAST(:now_us AS bigint)
FROM forebay.each(:parcels) AS e
