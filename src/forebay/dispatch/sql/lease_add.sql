-- A lease begins.
INSERT INTO forebay.parcel_leases (lease_id, worker, started_us, beat_us, until_us)
VALUES (:lease_id, :worker, :now_us, :now_us, :until_us)
