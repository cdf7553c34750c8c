-- Dispatch (forebay.dispatch): parcels, where they wait, who works on them. Times are microseconds since 1970 UTC.

-- Flows: what is wanted of them, and how far their sources are cut.
CREATE TABLE dispatch_flows (
    flow       TEXT PRIMARY KEY,
    version    INTEGER NOT NULL,                  -- of the definition that new parcels get
    state      TEXT NOT NULL,                     -- RUNNING, PAUSED, STOPPED
    reason     TEXT NOT NULL DEFAULT '',          -- why it is stopped, if not by a person
    queue_id   INTEGER NOT NULL DEFAULT 0,        -- the source's identity: one that is made again has another
    next_seq   INTEGER NOT NULL DEFAULT 1,        -- the first message that is in no parcel
    waits_us   INTEGER,                           -- since when messages wait to be cut; NULL: none do
    tick_us    INTEGER,                           -- when a timed source is due
    updated_us INTEGER NOT NULL
) WITHOUT ROWID;

-- What a flow was when its parcels were cut: parcels keep the version that they began with.
CREATE TABLE dispatch_definitions (
    flow       TEXT NOT NULL,
    version    INTEGER NOT NULL,
    definition TEXT NOT NULL,                     -- JSON of forebay.dispatch.definition.FlowDefinition
    created_us INTEGER NOT NULL,
    PRIMARY KEY (flow, version)
) WITHOUT ROWID;

CREATE TABLE parcels (
    did         TEXT PRIMARY KEY,
    flow        TEXT NOT NULL,
    version     INTEGER NOT NULL,
    parent      TEXT NOT NULL DEFAULT '',          -- the parcel that was split or replayed into this one
    queue       TEXT NOT NULL,
    first_seq   INTEGER NOT NULL,
    last_seq    INTEGER NOT NULL,
    messages    INTEGER NOT NULL,
    size        INTEGER NOT NULL,                  -- bytes, as far as known
    place       INTEGER NOT NULL,                  -- place in line, given when it is cut and kept
    state       TEXT NOT NULL,                     -- IN_FLIGHT, COMPLETE, FILTERED, ERROR, CANCELLED
    annotations TEXT NOT NULL DEFAULT '{}',
    created_us  INTEGER NOT NULL,
    updated_us  INTEGER NOT NULL,
    finished_us INTEGER                            -- NULL: it is not finished
) WITHOUT ROWID;

CREATE INDEX parcels_by_place ON parcels (place);
CREATE INDEX parcels_of_parent ON parcels (parent) WHERE parent <> '';
CREATE INDEX parcels_of_flow ON parcels (flow, state, place);
CREATE INDEX parcels_by_state ON parcels (state, place);
CREATE INDEX parcels_finished ON parcels (finished_us) WHERE finished_us IS NOT NULL;

-- A parcel's step: one row for each chain of actions that it has come to. The authority on who may work on it.
CREATE TABLE parcel_flows (
    did          TEXT NOT NULL,
    step         INTEGER NOT NULL,                 -- number of the chain in the flow, from 0
    flow         TEXT NOT NULL,
    flow_type    TEXT NOT NULL,                    -- TRANSFORM, or DATA_SINK for a flow's last step
    action       TEXT NOT NULL,
    action_class TEXT NOT NULL,
    state        TEXT NOT NULL,                    -- QUEUED, COLD_QUEUED, LEASED, JOINING, EXPORTING, COMPLETE, FILTERED, ERROR, CANCELLED
    place        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL DEFAULT 0,       -- leases begun since it was queued by a person or a flow
    lease_id     TEXT NOT NULL DEFAULT '',         -- a finished row keeps the lease that finished it
    ranges       TEXT NOT NULL,                    -- JSON [[queue, first_seq, last_seq], ...]
    messages     INTEGER NOT NULL,
    size         INTEGER NOT NULL,
    queued_us    INTEGER NOT NULL,
    due_us       INTEGER,                          -- when an ERROR is queued again by itself; NULL: never
    error        TEXT NOT NULL DEFAULT '',
    join_key     TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (did, step)
) WITHOUT ROWID;

CREATE INDEX parcel_flows_queued ON parcel_flows (action_class, flow, place, did, step) WHERE state = 'QUEUED';
CREATE INDEX parcel_flows_cold_queued ON parcel_flows (action_class, place, did, step) WHERE state = 'COLD_QUEUED';
CREATE INDEX parcel_flows_of_lease ON parcel_flows (lease_id) WHERE lease_id <> '';
CREATE INDEX parcel_flows_due ON parcel_flows (due_us) WHERE due_us IS NOT NULL;
CREATE INDEX parcel_flows_of_flow ON parcel_flows (flow, state, place);
CREATE INDEX parcel_flows_joining ON parcel_flows (flow, action, join_key, place) WHERE state = 'JOINING';
CREATE INDEX parcel_flows_exporting ON parcel_flows (flow, place) WHERE state = 'EXPORTING';

-- The seed's table, kept by triggers on parcel_flows: what waits cold, oldest first by place.
CREATE TABLE cold_queue_entries (
    did          TEXT NOT NULL,
    step         INTEGER NOT NULL,
    flow         TEXT NOT NULL,
    flow_type    TEXT NOT NULL,
    action       TEXT NOT NULL,
    action_class TEXT NOT NULL,
    place        INTEGER NOT NULL,
    queued_us    INTEGER NOT NULL,
    PRIMARY KEY (did, step)
) WITHOUT ROWID;

CREATE INDEX cold_queue_entries_by_class ON cold_queue_entries (action_class, place);
CREATE INDEX cold_queue_entries_by_action ON cold_queue_entries (action_class, flow, action, queued_us);

-- How many wait or run, kept by the same triggers: exact, however many there are.
CREATE TABLE action_queues (
    action_class TEXT NOT NULL,
    flow         TEXT NOT NULL,
    action       TEXT NOT NULL,
    flow_type    TEXT NOT NULL,
    queued       INTEGER NOT NULL DEFAULT 0,
    cold         INTEGER NOT NULL DEFAULT 0,
    leased       INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (action_class, flow, action)
) WITHOUT ROWID;

-- One row per action class. Work that moves parcels of a class locks it first, in the order of names.
CREATE TABLE action_classes (
    action_class TEXT PRIMARY KEY,
    is_cold      INTEGER NOT NULL DEFAULT 0,      -- new parcels wait cold
    went_cold    INTEGER NOT NULL DEFAULT 0,      -- how often it did
    went_warm    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

CREATE TABLE parcel_leases (
    lease_id   TEXT PRIMARY KEY,
    worker     TEXT NOT NULL,
    started_us INTEGER NOT NULL,
    beat_us    INTEGER NOT NULL,
    until_us   INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX parcel_leases_by_end ON parcel_leases (until_us);

CREATE TABLE dispatch_workers (
    worker  TEXT PRIMARY KEY,
    classes TEXT NOT NULL,                         -- JSON list of patterns
    plugin  TEXT NOT NULL,                         -- what provides its actions, such as shop:1.2.0
    seen_us INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE parcel_events (
    did        TEXT NOT NULL,
    number     INTEGER NOT NULL,                   -- of the event in its parcel, from 1
    step       INTEGER NOT NULL,
    action     TEXT NOT NULL,
    event      TEXT NOT NULL,
    at_us      INTEGER NOT NULL,
    started_us INTEGER,
    worker     TEXT NOT NULL DEFAULT '',
    attempt    INTEGER NOT NULL DEFAULT 0,
    rows_in    INTEGER,
    rows_out   INTEGER,
    filtered   INTEGER,
    bad        INTEGER,
    text       TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (did, number)
) WITHOUT ROWID;

-- The first message that an unfinished parcel of a flow still needs. Retention spares what is not before it.
CREATE TABLE parcel_holds (
    queue_id INTEGER NOT NULL,
    flow     TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    PRIMARY KEY (queue_id, flow)
) WITHOUT ROWID;

-- Token buckets, shared by all servers: of flows and of sources.
CREATE TABLE rate_buckets (
    name       TEXT PRIMARY KEY,
    tokens     REAL NOT NULL,
    updated_us INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE resume_policies (
    name       TEXT PRIMARY KEY,
    policy     TEXT NOT NULL,                      -- JSON of forebay.dispatch.retries.ResumePolicy
    updated_us INTEGER NOT NULL
) WITHOUT ROWID;

-- Numbers that only grow: `place` of the last parcel, and how often what was done (requeues, expiries, ...).
CREATE TABLE dispatch_numbers (
    name  TEXT PRIMARY KEY,
    value INTEGER NOT NULL
) WITHOUT ROWID;

-- Steps that went into ERROR for good, until the sources of kind `errors` have seen them: each is taken out once.
CREATE TABLE parcel_errors (
    did  TEXT NOT NULL,
    step INTEGER NOT NULL,
    PRIMARY KEY (did, step)
) WITHOUT ROWID;

-- What EXPORTING steps wait for: a group has passed a seq in a partition of a queue. Ordered by what is looked for.
CREATE TABLE parcel_awaits (
    queue      TEXT NOT NULL,
    queue_id   INTEGER NOT NULL,                   -- its identity: one that is made again has another
    group_name TEXT NOT NULL,
    partition  TEXT NOT NULL,
    last_seq   INTEGER NOT NULL,                   -- of what was committed to the queue with the step's lease
    did        TEXT NOT NULL,
    step       INTEGER NOT NULL,
    first_seq  INTEGER NOT NULL,
    PRIMARY KEY (queue, queue_id, group_name, partition, last_seq, did, step)
) WITHOUT ROWID;

CREATE INDEX parcel_awaits_of_step ON parcel_awaits (did, step);

-- A step that is cancelled, or that failed, waits for nothing.
CREATE TRIGGER parcel_flows_exported AFTER UPDATE OF state ON parcel_flows
WHEN old.state = 'EXPORTING' AND new.state <> 'EXPORTING'
BEGIN
    DELETE FROM parcel_awaits WHERE did = old.did AND step = old.step;
END;

CREATE TRIGGER parcel_flows_failed AFTER UPDATE OF state ON parcel_flows
WHEN new.state = 'ERROR' AND old.state <> 'ERROR' AND new.due_us IS NULL
BEGIN
    INSERT INTO parcel_errors (did, step) VALUES (new.did, new.step) ON CONFLICT (did, step) DO NOTHING;
END;

-- TRIGGERS: below this line

-- What waits cold, and how many wait or run: kept with every row of parcel_flows, whoever changes it.
CREATE TRIGGER parcel_flows_inserted AFTER INSERT ON parcel_flows
WHEN new.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED')
BEGIN
    INSERT INTO action_queues (action_class, flow, action, flow_type, queued, cold, leased)
    VALUES (new.action_class, new.flow, new.action, new.flow_type,
            new.state = 'QUEUED', new.state = 'COLD_QUEUED', new.state = 'LEASED')
    ON CONFLICT (action_class, flow, action) DO UPDATE
    SET queued = queued + excluded.queued, cold = cold + excluded.cold, leased = leased + excluded.leased;

    INSERT INTO cold_queue_entries (did, step, flow, flow_type, action, action_class, place, queued_us)
    SELECT new.did, new.step, new.flow, new.flow_type, new.action, new.action_class, new.place, new.queued_us
    WHERE new.state = 'COLD_QUEUED';
END;

-- A step keeps its flow, action and class, so that one row of action_queues has all of the change.
CREATE TRIGGER parcel_flows_moved AFTER UPDATE OF state ON parcel_flows
WHEN new.state <> old.state
    AND (new.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED') OR old.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED'))
BEGIN
    INSERT INTO action_queues (action_class, flow, action, flow_type, queued, cold, leased)
    VALUES (new.action_class, new.flow, new.action, new.flow_type,
            (new.state = 'QUEUED') - (old.state = 'QUEUED'),
            (new.state = 'COLD_QUEUED') - (old.state = 'COLD_QUEUED'),
            (new.state = 'LEASED') - (old.state = 'LEASED'))
    ON CONFLICT (action_class, flow, action) DO UPDATE
    SET queued = queued + excluded.queued, cold = cold + excluded.cold, leased = leased + excluded.leased;
END;

CREATE TRIGGER parcel_flows_went_cold AFTER UPDATE OF state ON parcel_flows
WHEN new.state = 'COLD_QUEUED' AND old.state <> 'COLD_QUEUED'
BEGIN
    INSERT INTO cold_queue_entries (did, step, flow, flow_type, action, action_class, place, queued_us)
    VALUES (new.did, new.step, new.flow, new.flow_type, new.action, new.action_class, new.place, new.queued_us);
END;

CREATE TRIGGER parcel_flows_left_the_cold AFTER UPDATE OF state ON parcel_flows
WHEN old.state = 'COLD_QUEUED' AND new.state <> 'COLD_QUEUED'
BEGIN
    DELETE FROM cold_queue_entries WHERE did = old.did AND step = old.step;
END;

CREATE TRIGGER parcel_flows_deleted AFTER DELETE ON parcel_flows
WHEN old.state IN ('QUEUED', 'COLD_QUEUED', 'LEASED')
BEGIN
    UPDATE action_queues
    SET queued = queued - (old.state = 'QUEUED'), cold = cold - (old.state = 'COLD_QUEUED'),
        leased = leased - (old.state = 'LEASED')
    WHERE action_class = old.action_class AND flow = old.flow AND action = old.action;

    DELETE FROM cold_queue_entries WHERE did = old.did AND step = old.step;
END;

CREATE TRIGGER parcel_flows_keep_their_class BEFORE UPDATE OF did, step, flow, action, action_class, place ON parcel_flows
WHEN (new.did, new.step, new.flow, new.action, new.action_class, new.place)
    IS NOT (old.did, old.step, old.flow, old.action, old.action_class, old.place)
BEGIN
    SELECT RAISE(ABORT, 'a step of a parcel keeps its flow, action, class and place');
END;
