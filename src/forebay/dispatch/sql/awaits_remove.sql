-- Steps need not wait for a group in a partition any more, each given as [did, step].
DELETE FROM forebay.parcel_awaits
WHERE (did, step) IN (SELECT k.value ->> 0, CAST(k.value ->> 1 AS bigint) FROM forebay.each(:steps) AS k)
    AND queue = :queue AND queue_id = :queue_id AND group_name = :group AND partition = :partition
