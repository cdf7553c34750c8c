-- Queues, partitions, messages, groups, deliveries, dead letters, traces, flags.
-- Why each column is here stands in the essay of `forebay.broker.stores.postgres`.

CREATE FUNCTION forebay.now_us() RETURNS bigint
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $$ SELECT (extract(epoch FROM statement_timestamp()) * 1000000)::bigint $$;

-- A deleted queue keeps its row, without a name, until retention has removed what it held.
CREATE TABLE forebay.queues (
    queue_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" UNIQUE,
    namespace text COLLATE "C" NOT NULL,
    task text COLLATE "C" NOT NULL,
    options jsonb NOT NULL,
    priority integer NOT NULL,
    created_us bigint NOT NULL,
    next_seq bigint NOT NULL DEFAULT 1 CHECK (next_seq >= 1),
    newest_us bigint NOT NULL DEFAULT 0,
    removed bigint NOT NULL DEFAULT 0 CHECK (removed >= 0 AND removed < next_seq),
    size_bytes bigint NOT NULL DEFAULT 0 CHECK (size_bytes >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);

CREATE TABLE forebay.partitions (
    partition_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL REFERENCES forebay.queues,
    name text COLLATE "C" NOT NULL,
    last_seq bigint NOT NULL,
    last_position bigint NOT NULL,
    newest_us bigint NOT NULL,
    removed_seq bigint NOT NULL DEFAULT 0,
    removed_position bigint NOT NULL DEFAULT 0 CHECK (removed_position <= last_position),
    UNIQUE (queue_id, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02);
CREATE INDEX partitions_by_last_seq ON forebay.partitions (queue_id, last_seq);

-- Append-only. No foreign keys: they would cost a lookup per message, and the queue's lock says the same.
CREATE TABLE forebay.messages (
    queue_id bigint NOT NULL,
    seq bigint NOT NULL,
    partition_id bigint NOT NULL,
    position bigint NOT NULL,
    created_us bigint NOT NULL,
    is_binary boolean NOT NULL,
    is_minted boolean NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    trace_id text COLLATE "C" NOT NULL,
    headers bytea NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (queue_id, seq)
);
CREATE UNIQUE INDEX messages_by_partition ON forebay.messages (partition_id, seq);
CREATE UNIQUE INDEX messages_by_transaction_id ON forebay.messages (partition_id, transaction_id) WHERE NOT is_minted;
-- Payloads come compressed or small; trying again costs more than it saves.
ALTER TABLE forebay.messages ALTER COLUMN payload SET STORAGE EXTERNAL;

CREATE TABLE forebay.groups (
    group_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL REFERENCES forebay.queues,
    name text COLLATE "C" NOT NULL,
    subscription_mode text NOT NULL CHECK (subscription_mode IN ('all', 'new', 'from')),
    subscription_from_us bigint NOT NULL,
    start_seq bigint NOT NULL,
    looked_seq bigint NOT NULL,
    created_us bigint NOT NULL,
    last_active_us bigint NOT NULL,
    UNIQUE (queue_id, name)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 500);
CREATE INDEX groups_by_name ON forebay.groups (name);

CREATE TABLE forebay.deliveries (
    group_id bigint NOT NULL REFERENCES forebay.groups ON DELETE CASCADE,
    partition_id bigint NOT NULL REFERENCES forebay.partitions,
    state bytea NOT NULL,
    cursor_seq bigint NOT NULL,
    seen_seq bigint NOT NULL CHECK (seen_seq >= cursor_seq),
    seen_position bigint NOT NULL,
    open_count integer NOT NULL CHECK (open_count >= 0),
    lease_id text COLLATE "C" NOT NULL,
    due_us bigint,
    dropped bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (group_id, partition_id)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
CREATE INDEX deliveries_by_due ON forebay.deliveries (group_id, due_us) WHERE due_us IS NOT NULL;
CREATE INDEX deliveries_by_lease ON forebay.deliveries (lease_id) WHERE lease_id <> '';
CREATE INDEX deliveries_by_partition ON forebay.deliveries (partition_id);

CREATE TABLE forebay.dead_letters (
    letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue_id bigint NOT NULL REFERENCES forebay.queues,
    partition_id bigint NOT NULL REFERENCES forebay.partitions,
    group_name text COLLATE "C" NOT NULL,
    seq bigint NOT NULL,
    attempts integer NOT NULL,
    reason text NOT NULL,
    failed_us bigint NOT NULL,
    created_us bigint NOT NULL,
    is_binary boolean NOT NULL,
    transaction_id text COLLATE "C" NOT NULL,
    trace_id text COLLATE "C" NOT NULL,
    headers bytea NOT NULL,
    payload bytea NOT NULL
);
CREATE INDEX dead_letters_by_queue ON forebay.dead_letters (queue_id, letter_id);
CREATE INDEX dead_letters_by_partition ON forebay.dead_letters (partition_id);

CREATE TABLE forebay.traces (
    trace_event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    partition_id bigint NOT NULL REFERENCES forebay.partitions,
    transaction_id text COLLATE "C" NOT NULL,
    group_name text COLLATE "C" NOT NULL,
    event_type text NOT NULL,
    names text[] COLLATE "C" NOT NULL,
    data bytea NOT NULL,
    created_us bigint NOT NULL
);
CREATE INDEX traces_by_message ON forebay.traces (partition_id, transaction_id);
CREATE INDEX traces_by_name ON forebay.traces USING gin (names);

CREATE TABLE forebay.flags (
    name text COLLATE "C" PRIMARY KEY,
    is_set boolean NOT NULL
);

-- Which servers wait for messages of which queue; '' stands for any. Worth nothing after a crash.
CREATE UNLOGGED TABLE forebay.waits (
    queue text COLLATE "C" NOT NULL,
    server_id text COLLATE "C" NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (queue, server_id)
);

-- The first message that is at least as young as `wanted_us`; the queue's next seq when none is. A search by halves,
-- because messages have no index by time and do not need one: seq order is the order in which they were made.
CREATE FUNCTION forebay.first_seq_since(wanted_queue_id bigint, wanted_us bigint) RETURNS bigint
    LANGUAGE plpgsql STABLE
    AS $$
DECLARE
    low bigint := 1;
    high bigint;
    answer bigint;
    middle bigint;
    found_seq bigint;
    found_us bigint;
BEGIN
    SELECT next_seq, next_seq INTO STRICT high, answer FROM forebay.queues WHERE queue_id = wanted_queue_id;
    WHILE low < high LOOP
        middle := (low + high) / 2;
        SELECT seq, created_us INTO found_seq, found_us FROM forebay.messages
            WHERE queue_id = wanted_queue_id AND seq >= middle AND seq < high ORDER BY seq LIMIT 1;
        IF found_us < wanted_us THEN
            low := found_seq + 1;
        ELSE
            answer := coalesce(found_seq, answer);
            high := middle;
        END IF;
    END LOOP;
    RETURN answer;
END
$$;

-- How many messages of the partition came up to `wanted_seq`, as far as they are kept.
CREATE FUNCTION forebay.position_at(wanted_partition_id bigint, wanted_seq bigint) RETURNS bigint
    LANGUAGE sql STABLE
    AS $$
    SELECT coalesce((
        SELECT position FROM forebay.messages
        WHERE partition_id = wanted_partition_id AND seq <= wanted_seq ORDER BY seq DESC LIMIT 1
    ), 0)
$$;

-- What each group has not finished, per partition.
CREATE VIEW forebay.waiting AS
SELECT g.queue_id, g.group_id, p.partition_id, coalesce(d.cursor_seq, g.start_seq) AS cursor_seq,
    p.last_position - greatest(p.removed_position, CASE
        WHEN d.seen_position IS NOT NULL THEN d.seen_position
        WHEN g.start_seq = 0 THEN 0
        WHEN p.last_seq <= g.start_seq THEN p.last_position
        ELSE forebay.position_at(p.partition_id, g.start_seq)
    END) + coalesce(d.open_count, 0) AS messages
FROM forebay.groups g
JOIN forebay.partitions p ON p.queue_id = g.queue_id
LEFT JOIN forebay.deliveries d ON d.group_id = g.group_id AND d.partition_id = p.partition_id;
