-- What happened to parcels, each given as [did, how many events of the parcel are before it in the list, step, action, event,
-- at_us, started_us, worker, attempt, rows_in, rows_out, filtered, bad, text].
INSERT INTO forebay.parcel_events (did, number, step, action, event, at_us, started_us, worker, attempt, rows_in, rows_out,
                                   filtered, bad, text)
SELECT k.value ->> 0,
       COALESCE((SELECT max(e.number) FROM forebay.parcel_events AS e WHERE e.did = k.value ->> 0), 0)
           + CAST(k.value ->> 1 AS bigint) + 1,
       CAST(k.value ->> 2 AS bigint), k.value ->> 3, k.value ->> 4, CAST(k.value ->> 5 AS bigint),
       CAST(k.value ->> 6 AS bigint), k.value ->> 7, CAST(k.value ->> 8 AS bigint), CAST(k.value ->> 9 AS bigint),
       CAST(k.value ->> 10 AS bigint), CAST(k.value ->> 11 AS bigint), CAST(k.value ->> 12 AS bigint), k.value ->> 13
FROM forebay.each(:events) AS k
