-- Dispatch (forebay.dispatch): parcels, where they wait, who works on them. Times are microseconds since 1970 UTC.

-- Lists go into statements as JSON: one row for each item.
CREATE FUNCTION forebay.each(items text) RETURNS TABLE (value json)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 100 AS
'SELECT i.value FROM pg_catalog.json_array_elements(items::json) AS i (value)';

-- Flows: what is wanted of them, and how far their sources are cut.
CREATE TABLE forebay.dispatch_flows (
    flow       text COLLATE "C" PRIMARY KEY,
    version    bigint NOT NULL,                  -- of the definition that new parcels get
    state      text COLLATE "C" NOT NULL,                     -- RUNNING, PAUSED, STOPPED
    reason     text COLLATE "C" NOT NULL DEFAULT '',          -- why it is stopped, if not by a person
    queue_id   bigint NOT NULL DEFAULT 0,        -- the source's identity: one that is made again has another
    next_seq   bigint NOT NULL DEFAULT 1,        -- the first message that is in no parcel
    waits_us   bigint,                           -- since when messages wait to be cut; NULL: none do
    tick_us    bigint,                           -- when a timed source is due
    updated_us bigint NOT NULL
);

-- What a flow was when its parcels were cut: parcels keep the version that they began with.
CREATE TABLE forebay.dispatch_definitions (
    flow       text COLLATE "C" NOT NULL,
    version    bigint NOT NULL,
    definition text COLLATE "C" NOT NULL,                     -- JSON of forebay.dispatch.definition.FlowDefinition
    created_us bigint NOT NULL,
    PRIMARY KEY (flow, version)
);

CREATE TABLE forebay.parcels (
    did         text COLLATE "C" PRIMARY KEY,
    flow        text COLLATE "C" NOT NULL,
    version     bigint NOT NULL,
    parent      text COLLATE "C" NOT NULL DEFAULT '',          -- the parcel that was split or replayed into this one
    queue       text COLLATE "C" NOT NULL,
    first_seq   bigint NOT NULL,
    last_seq    bigint NOT NULL,
    messages    bigint NOT NULL,
    size        bigint NOT NULL,                  -- bytes, as far as known
    place       bigint NOT NULL,                  -- place in line, given when it is cut and kept
    state       text COLLATE "C" NOT NULL,                     -- IN_FLIGHT, COMPLETE, FILTERED, ERROR, CANCELLED
    annotations text COLLATE "C" NOT NULL DEFAULT '{}',
    created_us  bigint NOT NULL,
    updated_us  bigint NOT NULL,
    finished_us bigint                            -- NULL: it is not finished
);

CREATE INDEX parcels_by_place ON forebay.parcels (place);
CREATE INDEX parcels_of_parent ON forebay.parcels (parent) WHERE parent <> '';
CREATE INDEX parcels_of_flow ON forebay.parcels (flow, state, place);
CREATE INDEX parcels_by_state ON forebay.parcels (state, place);
CREATE INDEX parcels_finished ON forebay.parcels (finished_us) WHERE finished_us IS NOT NULL;

-- A parcel's step: one row for each chain of actions that it has come to. The authority on who may work on it.
CREATE TABLE forebay.parcel_flows (
    did          text COLLATE "C" NOT NULL,
    step         bigint NOT NULL,                 -- number of the chain in the flow, from 0
    flow         text COLLATE "C" NOT NULL,
    flow_type    text COLLATE "C" NOT NULL,                    -- TRANSFORM, or DATA_SINK for a flow's last step
    action       text COLLATE "C" NOT NULL,
    action_class text COLLATE "C" NOT NULL,
    state        text COLLATE "C" NOT NULL,                    -- QUEUED, COLD_QUEUED, LEASED, JOINING, EXPORTING, COMPLETE, FILTERED, ERROR, CANCELLED
    place        bigint NOT NULL,
    attempts     bigint NOT NULL DEFAULT 0,       -- leases begun since it was queued by a person or a flow
    lease_id     text COLLATE "C" NOT NULL DEFAULT '',         -- a finished row keeps the lease that finished it
    ranges       text COLLATE "C" NOT NULL,                    -- JSON [[queue, first_seq, last_seq], ...]
    messages     bigint NOT NULL,
    size         bigint NOT NULL,
    queued_us    bigint NOT NULL,
    due_us       bigint,                          -- when an ERROR is queued again by itself; NULL: never
    error        text COLLATE "C" NOT NULL DEFAULT '',
    join_key     text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (did, step)
);

CREATE INDEX parcel_flows_queued ON forebay.parcel_flows (action_class, flow, place, did, step) WHERE state = 'QUEUED';
CREATE INDEX parcel_flows_cold_queued ON forebay.parcel_flows (action_class, place, did, step) WHERE state = 'COLD_QUEUED';
CREATE INDEX parcel_flows_of_lease ON forebay.parcel_flows (lease_id) WHERE lease_id <> '';
CREATE INDEX parcel_flows_due ON forebay.parcel_flows (due_us) WHERE due_us IS NOT NULL;
CREATE INDEX parcel_flows_of_flow ON forebay.parcel_flows (flow, state, place);
CREATE INDEX parcel_flows_joining ON forebay.parcel_flows (flow, action, join_key, place) WHERE state = 'JOINING';
CREATE INDEX parcel_flows_exporting ON forebay.parcel_flows (flow, place) WHERE state = 'EXPORTING';

-- The seed's table, kept by triggers on parcel_flows: what waits cold, oldest first by place.
CREATE TABLE forebay.cold_queue_entries (
    did          text COLLATE "C" NOT NULL,
    step         bigint NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    flow_type    text COLLATE "C" NOT NULL,
    action       text COLLATE "C" NOT NULL,
    action_class text COLLATE "C" NOT NULL,
    place        bigint NOT NULL,
    queued_us    bigint NOT NULL,
    PRIMARY KEY (did, step)
);

CREATE INDEX cold_queue_entries_by_class ON forebay.cold_queue_entries (action_class, place);
CREATE INDEX cold_queue_entries_by_action ON forebay.cold_queue_entries (action_class, flow, action, queued_us);

-- How many wait or run, kept by the same triggers: exact, however many there are.
CREATE TABLE forebay.action_queues (
    action_class text COLLATE "C" NOT NULL,
    flow         text COLLATE "C" NOT NULL,
    action       text COLLATE "C" NOT NULL,
    flow_type    text COLLATE "C" NOT NULL,
    queued       bigint NOT NULL DEFAULT 0,
    cold         bigint NOT NULL DEFAULT 0,
    leased       bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (action_class, flow, action)
);

-- One row per action class. Work that moves parcels of a class locks it first, in the order of names.
CREATE TABLE forebay.action_classes (
    action_class text COLLATE "C" PRIMARY KEY,
    is_cold      bigint NOT NULL DEFAULT 0,      -- new parcels wait cold
    went_cold    bigint NOT NULL DEFAULT 0,      -- how often it did
    went_warm    bigint NOT NULL DEFAULT 0
);

CREATE TABLE forebay.parcel_leases (
    lease_id   text COLLATE "C" PRIMARY KEY,
    worker     text COLLATE "C" NOT NULL,
    started_us bigint NOT NULL,
    beat_us    bigint NOT NULL,
    until_us   bigint NOT NULL
);

CREATE INDEX parcel_leases_by_end ON forebay.parcel_leases (until_us);

CREATE TABLE forebay.dispatch_workers (
    worker  text COLLATE "C" PRIMARY KEY,
    classes text COLLATE "C" NOT NULL,                         -- JSON list of patterns
    plugin  text COLLATE "C" NOT NULL,                         -- what provides its actions, such as shop:1.2.0
    seen_us bigint NOT NULL
);

CREATE TABLE forebay.parcel_events (
    did        text COLLATE "C" NOT NULL,
    number     bigint NOT NULL,                   -- of the event in its parcel, from 1
    step       bigint NOT NULL,
    action     text COLLATE "C" NOT NULL,
    event      text COLLATE "C" NOT NULL,
    at_us      bigint NOT NULL,
    started_us bigint,
    worker     text COLLATE "C" NOT NULL DEFAULT '',
    attempt    bigint NOT NULL DEFAULT 0,
    rows_in    bigint,
    rows_out   bigint,
    filtered   bigint,
    bad        bigint,
    text       text COLLATE "C" NOT NULL DEFAULT '',
    PRIMARY KEY (did, number)
);

-- The first message that an unfinished parcel of a flow still needs. Retention spares what is not before it.
CREATE TABLE forebay.parcel_holds (
    queue_id bigint NOT NULL,
    flow     text COLLATE "C" NOT NULL,
    seq      bigint NOT NULL,
    PRIMARY KEY (queue_id, flow)
);

-- Token buckets, shared by all servers: of flows and of sources.
CREATE TABLE forebay.rate_buckets (
    name       text COLLATE "C" PRIMARY KEY,
    tokens     double precision NOT NULL,
    updated_us bigint NOT NULL
);

CREATE TABLE forebay.resume_policies (
    name       text COLLATE "C" PRIMARY KEY,
    policy     text COLLATE "C" NOT NULL,                      -- JSON of forebay.dispatch.retries.ResumePolicy
    updated_us bigint NOT NULL
);

-- Numbers that only grow: `place` of the last parcel, and how often what was done (requeues, expiries, ...).
CREATE TABLE forebay.dispatch_numbers (
    name  text COLLATE "C" PRIMARY KEY,
    value bigint NOT NULL
);

-- Steps that went into ERROR for good, until the sources of kind `errors` have seen them: each is taken out once.
CREATE TABLE forebay.parcel_errors (
    did  text COLLATE "C" NOT NULL,
    step bigint NOT NULL,
    PRIMARY KEY (did, step)
);

-- What EXPORTING steps wait for: a group has passed a seq in a partition of a queue. Ordered by what is looked for.
CREATE TABLE forebay.parcel_awaits (
    queue      text COLLATE "C" NOT NULL,
    queue_id   bigint NOT NULL,                   -- its identity: one that is made again has another
    group_name text COLLATE "C" NOT NULL,
    partition  text COLLATE "C" NOT NULL,
    last_seq   bigint NOT NULL,                   -- of what was committed to the queue with the step's lease
    did        text COLLATE "C" NOT NULL,
    step       bigint NOT NULL,
    first_seq  bigint NOT NULL,
    PRIMARY KEY (queue, queue_id, group_name, partition, last_seq, did, step)
);

CREATE INDEX parcel_awaits_of_step ON forebay.parcel_awaits (did, step);

-- A step that is cancelled, or that failed, waits for nothing.
CREATE FUNCTION forebay.parcel_flows_exported() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    DELETE FROM forebay.parcel_awaits AS a WHERE a.did = old.did AND a.step = old.step;
    RETURN NULL;
END $$;

CREATE TRIGGER parcel_flows_exported AFTER UPDATE OF state ON forebay.parcel_flows
FOR EACH ROW WHEN (old.state = 'EXPORTING' AND new.state <> 'EXPORTING')
EXECUTE FUNCTION forebay.parcel_flows_exported();

CREATE FUNCTION forebay.parcel_flows_failed() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO forebay.parcel_errors (did, step) VALUES (new.did, new.step) ON CONFLICT (did, step) DO NOTHING;
    RETURN NULL;
END $$;

-- For each row, and only where the condition holds: errors are few, and other changes pay nothing.
CREATE TRIGGER parcel_flows_failed AFTER UPDATE OF state ON forebay.parcel_flows
FOR EACH ROW WHEN (new.state = 'ERROR' AND old.state <> 'ERROR' AND new.due_us IS NULL)
EXECUTE FUNCTION forebay.parcel_flows_failed();

-- TRIGGERS: below this line

-- What waits cold, and how many wait or run: kept with every row of parcel_flows, whoever changes it. Once per statement,
-- with one change for all rows of a class, flow and action; in the order of the keys, so that two statements that
-- change several of them do not wait for each other.
CREATE FUNCTION forebay.parcel_flows_inserted() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO forebay.action_queues AS q (action_class, flow, action, flow_type, queued, cold, leased)
    SELECT action_class, flow, action, max(flow_type),
           count(*) FILTER (WHERE state = 'QUEUED'),
           count(*) FILTER (WHERE state = 'COLD_QUEUED'),
           count(*) FILTER (WHERE state = 'LEASED')
    FROM arrived
    WHERE state IN ('QUEUED', 'COLD_QUEUED', 'LEASED')
    GROUP BY action_class, flow, action
    ORDER BY action_class, flow, action
    ON CONFLICT (action_class, flow, action) DO UPDATE
    SET queued = q.queued + excluded.queued, cold = q.cold + excluded.cold, leased = q.leased + excluded.leased;

    INSERT INTO forebay.cold_queue_entries (did, step, flow, flow_type, action, action_class, place, queued_us)
    SELECT did, step, flow, flow_type, action, action_class, place, queued_us
    FROM arrived
    WHERE state = 'COLD_QUEUED';
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.parcel_flows_moved() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO forebay.action_queues AS q (action_class, flow, action, flow_type, queued, cold, leased)
    SELECT action_class, flow, action, max(flow_type), sum(queued), sum(cold), sum(leased)
    FROM (
        SELECT action_class, flow, action, flow_type,
               (state = 'QUEUED')::int AS queued, (state = 'COLD_QUEUED')::int AS cold, (state = 'LEASED')::int AS leased
        FROM after_it
        UNION ALL
        SELECT action_class, flow, action, flow_type,
               -(state = 'QUEUED')::int, -(state = 'COLD_QUEUED')::int, -(state = 'LEASED')::int
        FROM before_it
    ) AS changes
    GROUP BY action_class, flow, action
    HAVING sum(queued) <> 0 OR sum(cold) <> 0 OR sum(leased) <> 0
    ORDER BY action_class, flow, action
    ON CONFLICT (action_class, flow, action) DO UPDATE
    SET queued = q.queued + excluded.queued, cold = q.cold + excluded.cold, leased = q.leased + excluded.leased;

    DELETE FROM forebay.cold_queue_entries AS c
    USING before_it AS b
    WHERE b.state = 'COLD_QUEUED' AND c.did = b.did AND c.step = b.step;

    -- One that was cold and still is comes back: rare, where comparing the two tables would cost every change.
    INSERT INTO forebay.cold_queue_entries (did, step, flow, flow_type, action, action_class, place, queued_us)
    SELECT did, step, flow, flow_type, action, action_class, place, queued_us
    FROM after_it
    WHERE state = 'COLD_QUEUED';
    RETURN NULL;
END $$;

CREATE FUNCTION forebay.parcel_flows_deleted() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog AS $$
BEGIN
    INSERT INTO forebay.action_queues AS q (action_class, flow, action, flow_type, queued, cold, leased)
    SELECT action_class, flow, action, max(flow_type),
           -count(*) FILTER (WHERE state = 'QUEUED'),
           -count(*) FILTER (WHERE state = 'COLD_QUEUED'),
           -count(*) FILTER (WHERE state = 'LEASED')
    FROM gone
    WHERE state IN ('QUEUED', 'COLD_QUEUED', 'LEASED')
    GROUP BY action_class, flow, action
    ORDER BY action_class, flow, action
    ON CONFLICT (action_class, flow, action) DO UPDATE
    SET queued = q.queued + excluded.queued, cold = q.cold + excluded.cold, leased = q.leased + excluded.leased;

    DELETE FROM forebay.cold_queue_entries AS c
    USING gone AS g
    WHERE g.state = 'COLD_QUEUED' AND c.did = g.did AND c.step = g.step;
    RETURN NULL;
END $$;

CREATE TRIGGER parcel_flows_inserted AFTER INSERT ON forebay.parcel_flows
REFERENCING NEW TABLE AS arrived
FOR EACH STATEMENT EXECUTE FUNCTION forebay.parcel_flows_inserted();

CREATE TRIGGER parcel_flows_moved AFTER UPDATE ON forebay.parcel_flows
REFERENCING OLD TABLE AS before_it NEW TABLE AS after_it
FOR EACH STATEMENT EXECUTE FUNCTION forebay.parcel_flows_moved();

CREATE TRIGGER parcel_flows_deleted AFTER DELETE ON forebay.parcel_flows
REFERENCING OLD TABLE AS gone
FOR EACH STATEMENT EXECUTE FUNCTION forebay.parcel_flows_deleted();
