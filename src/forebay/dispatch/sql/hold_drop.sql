-- A flow that reads a queue no more needs none of its messages.
DELETE FROM forebay.parcel_holds WHERE flow = :flow AND queue_id = :queue_id
