-- What the parcels under a lease of dispatch read, also when it is completed: JSON of [queue, first, last].
SELECT s.ranges FROM forebay.parcel_flows AS s WHERE s.lease_id = :lease AND s.lease_id <> ''
