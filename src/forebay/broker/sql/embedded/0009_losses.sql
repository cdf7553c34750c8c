-- What flows and parcels have to know so that nothing is missed in silence (forebay.dispatch).

-- What was removed of the source up to this seq was gone before the flow came to it, or was reported; NULL: not known, of a
-- flow that an older Forebay has cut.
ALTER TABLE dispatch_flows ADD COLUMN removed_seq INTEGER;

-- From when on a step in ERROR waits until it is due: a clock that was set back would make it wait longer.
ALTER TABLE parcel_flows ADD COLUMN failed_us INTEGER;

CREATE INDEX parcel_flows_since_failed ON parcel_flows (failed_us) WHERE due_us IS NOT NULL;
