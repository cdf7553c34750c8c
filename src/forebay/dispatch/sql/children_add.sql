-- Parts of parcels that were split, each given as [did, parent, queue, first_seq, last_seq, messages, state, annotations].
-- They have their parent's flow, version and place.
INSERT INTO forebay.parcels (did, flow, version, parent, queue, first_seq, last_seq, messages, size, place, state,
                             annotations, created_us, updated_us, finished_us)
SELECT k.value ->> 0, p.flow, p.version, p.did, k.value ->> 2, CAST(k.value ->> 3 AS bigint),
       CAST(k.value ->> 4 AS bigint), CAST(k.value ->> 5 AS bigint), 0, p.place, k.value ->> 6, k.value ->> 7,
       CAST(:now_us AS bigint), CAST(:now_us AS bigint),
       CASE WHEN k.value ->> 6 = 'COMPLETE' THEN CAST(:now_us AS bigint) END
FROM forebay.each(:children) AS k
JOIN forebay.parcels AS p ON p.did = k.value ->> 1
