-- What EXPORTING steps wait for, each given as [queue, queue_id, group, partition, last_seq, did, step, first_seq].
INSERT INTO forebay.parcel_awaits (queue, queue_id, group_name, partition, last_seq, did, step, first_seq)
SELECT k.value ->> 0, CAST(k.value ->> 1 AS bigint), k.value ->> 2, k.value ->> 3, CAST(k.value ->> 4 AS bigint),
       k.value ->> 5, CAST(k.value ->> 6 AS bigint), CAST(k.value ->> 7 AS bigint)
FROM forebay.each(:awaits) AS k
