-- What happened to a parcel.
SELECT number, step, action, event, at_us, started_us, worker, attempt, rows_in, rows_out, filtered, bad, text
FROM forebay.parcel_events
WHERE did = :did
ORDER BY number
