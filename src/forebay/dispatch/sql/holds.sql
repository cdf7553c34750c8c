-- From which message on retention spares queues, and for which flows.
SELECT queue_id, flow, seq FROM forebay.parcel_holds ORDER BY queue_id, flow
