-- The first seq of a queue that an unfinished parcel needs.
SELECT min(seq) FROM parcel_holds WHERE queue_id = :queue_id
