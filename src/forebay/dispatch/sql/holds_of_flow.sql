-- From which message on retention spares queues for a flow.
SELECT queue_id, seq FROM forebay.parcel_holds WHERE flow = :flow
