-- The embedded store's SQLite database. Times are microseconds since 1970 UTC.

CREATE TABLE IF NOT EXISTS queues (
    id          INTEGER PRIMARY KEY AUTOINCREMENT, -- never used twice: it names the queue's log directory
    name        TEXT NOT NULL UNIQUE,
    namespace   TEXT NOT NULL,
    task        TEXT NOT NULL,
    options     BLOB NOT NULL,
    created_us  INTEGER NOT NULL,
    indexed_seq INTEGER NOT NULL DEFAULT 0,        -- every message up to here is in blocks, or does not count
    gone_pushed INTEGER NOT NULL DEFAULT 0,        -- messages ever of partitions that are removed
    gone_seq    INTEGER NOT NULL DEFAULT 0         -- the last message of theirs that retention removed
);

CREATE TABLE IF NOT EXISTS partitions (
    id        INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id  INTEGER NOT NULL REFERENCES queues (id),
    name      TEXT NOT NULL,
    last_seq  INTEGER NOT NULL DEFAULT 0,
    newest_us INTEGER NOT NULL DEFAULT 0,
    pushed    INTEGER NOT NULL DEFAULT 0,          -- messages ever
    size      INTEGER NOT NULL DEFAULT 0,          -- bytes of the payloads that are kept
    floor_seq INTEGER NOT NULL DEFAULT 0,          -- messages up to here were removed by retention
    removed   INTEGER NOT NULL DEFAULT 0,          -- how many those are, and those that were deleted one by one
    UNIQUE (queue_id, name)
);

-- Partitions that were removed, for as long as the log holds records with messages of theirs. One that is made again
-- begins behind them.
CREATE TABLE IF NOT EXISTS removed_partitions (
    queue_id  INTEGER NOT NULL,
    name      TEXT NOT NULL,
    floor_seq INTEGER NOT NULL,                    -- its last message
    PRIMARY KEY (queue_id, name)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS removed_partitions_by_floor ON removed_partitions (queue_id, floor_seq);

-- One row per partition and record: which of the record's messages belong to the partition.
CREATE TABLE IF NOT EXISTS blocks (
    partition_id INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    last_seq     INTEGER NOT NULL,
    count        INTEGER NOT NULL,
    before       INTEGER NOT NULL,                 -- messages of the partition in front of these
    record_seq   INTEGER NOT NULL,                 -- the record's own first seq, and where it stands in its segment
    position     INTEGER NOT NULL,                 -- -1: the record cannot be read any more
    PRIMARY KEY (partition_id, first_seq)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS lost_blocks ON blocks (partition_id, first_seq) WHERE position < 0;

-- Messages that were accepted and cannot be read any more: per partition what a damaged or missing record held of it.
CREATE TABLE IF NOT EXISTS lost_messages (
    queue_id     INTEGER NOT NULL,
    first_seq    INTEGER NOT NULL,
    partition_id INTEGER NOT NULL,                 -- 0: not known, the messages were never indexed
    last_seq     INTEGER NOT NULL,
    messages     INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    found_us     INTEGER NOT NULL,
    PRIMARY KEY (queue_id, first_seq, partition_id)
) WITHOUT ROWID;

-- Ids that producers gave, for as long as their message is kept.
CREATE TABLE IF NOT EXISTS transaction_ids (
    partition_id   INTEGER NOT NULL,
    transaction_id TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    PRIMARY KEY (partition_id, transaction_id)
) WITHOUT ROWID;

-- Messages that were deleted one by one, until retention removes their neighbours too. The log is never rewritten.
CREATE TABLE IF NOT EXISTS deleted_messages (
    partition_id INTEGER NOT NULL,
    seq          INTEGER NOT NULL,
    PRIMARY KEY (partition_id, seq)
) WITHOUT ROWID;

-- Tags of log records that count. A record with a tag that is not here was never committed.
CREATE TABLE IF NOT EXISTS committed_tags (
    tag BLOB PRIMARY KEY
) WITHOUT ROWID;

-- Where the records of such a tag end in each queue's log. When all of these are gone, the tag is not needed any more.
CREATE TABLE IF NOT EXISTS tagged_records (
    tag      BLOB NOT NULL,
    queue_id INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    PRIMARY KEY (tag, queue_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS tagged_records_by_queue ON tagged_records (queue_id, last_seq);

CREATE TABLE IF NOT EXISTS groups (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id       INTEGER NOT NULL,
    name           TEXT NOT NULL,
    mode           TEXT NOT NULL,
    from_us        INTEGER NOT NULL,
    start_seq      INTEGER NOT NULL,               -- messages up to here are not for the group
    created_us     INTEGER NOT NULL,
    last_active_us INTEGER NOT NULL,
    UNIQUE (queue_id, name)
);

-- Readers that are not groups, such as streams of Spark. What is finished from their seq on is not removed until then.
CREATE TABLE IF NOT EXISTS holds (
    queue_id INTEGER NOT NULL,
    reader   TEXT NOT NULL,
    seq      INTEGER NOT NULL,
    until_us INTEGER NOT NULL,
    PRIMARY KEY (queue_id, reader)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS states (
    group_id     INTEGER NOT NULL,
    partition_id INTEGER NOT NULL,
    cursor_seq   INTEGER NOT NULL,
    lease_id     TEXT NOT NULL,
    state        BLOB NOT NULL,                    -- DeliveryState of forebay.broker.delivery, or in short: lease_rows
    has_pending  INTEGER NOT NULL DEFAULT 1,       -- 0: the cursor says all that the state does
    PRIMARY KEY (group_id, partition_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS states_by_lease ON states (lease_id) WHERE lease_id <> '';
CREATE INDEX IF NOT EXISTS states_by_partition ON states (partition_id);

CREATE TABLE IF NOT EXISTS dead_letters (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    queue_id       INTEGER NOT NULL,
    partition_id   INTEGER NOT NULL,
    group_name     TEXT NOT NULL,
    seq            INTEGER NOT NULL,
    attempts       INTEGER NOT NULL,
    reason         TEXT NOT NULL,
    failed_us      INTEGER NOT NULL,
    transaction_id TEXT NOT NULL,
    trace_id       TEXT NOT NULL,
    headers        BLOB NOT NULL,
    payload        BLOB NOT NULL,                  -- a copy: a dead letter outlives the retention of its message
    flags          INTEGER NOT NULL,
    created_us     INTEGER NOT NULL
);

CREATE INDEX IF NOT EXISTS dead_letters_by_queue ON dead_letters (queue_id, id);
CREATE INDEX IF NOT EXISTS dead_letters_by_partition ON dead_letters (partition_id);

CREATE TABLE IF NOT EXISTS traces (
    id             INTEGER PRIMARY KEY AUTOINCREMENT,
    partition_id   INTEGER NOT NULL,
    transaction_id TEXT NOT NULL,
    group_name     TEXT NOT NULL,
    event_type     TEXT NOT NULL,
    data           BLOB NOT NULL,
    created_us     INTEGER NOT NULL
);

CREATE INDEX IF NOT EXISTS traces_by_message ON traces (partition_id, transaction_id);

CREATE TABLE IF NOT EXISTS trace_names (
    name     TEXT NOT NULL,
    trace_id INTEGER NOT NULL REFERENCES traces (id),
    PRIMARY KEY (name, trace_id)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS trace_names_by_trace ON trace_names (trace_id);

CREATE TABLE IF NOT EXISTS flags (
    name   TEXT PRIMARY KEY,
    is_set INTEGER NOT NULL
) WITHOUT ROWID;

-- Flows: what their workers say of them, and what people want of them.
CREATE TABLE IF NOT EXISTS flows (
    name       TEXT PRIMARY KEY,
    worker     TEXT NOT NULL DEFAULT '',
    report     BLOB NOT NULL DEFAULT '{}',
    updated_us INTEGER NOT NULL DEFAULT 0,
    is_paused  INTEGER NOT NULL DEFAULT 0,
    resumes    INTEGER NOT NULL DEFAULT 0
) WITHOUT ROWID;

-- Rows that wait for their commit; each has a file of its name in `stages/`.
CREATE TABLE IF NOT EXISTS stages (
    stage_id   TEXT PRIMARY KEY,
    producer   TEXT NOT NULL,
    epoch      TEXT NOT NULL,
    part       TEXT NOT NULL,
    queue      TEXT NOT NULL,
    messages   INTEGER NOT NULL,
    size       INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    checksum   INTEGER NOT NULL DEFAULT 0,
    "write"    TEXT NOT NULL DEFAULT ''            -- tells several writes of one epoch to one queue apart
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS stages_by_epoch ON stages (producer, epoch);

-- What is committed: of each write of an epoch one row per queue. What its rows held, and what was done with them.
CREATE TABLE IF NOT EXISTS queue_commits (
    producer   TEXT NOT NULL,
    epoch      TEXT NOT NULL,
    "write"    TEXT NOT NULL,
    queue      TEXT NOT NULL,                      -- '': nothing was staged, and no queue named
    rows       INTEGER,                            -- NULL, as the next two: written by a Forebay that did not note it
    size       INTEGER,
    checksum   INTEGER,
    request    TEXT NOT NULL,                      -- stands for the stages that were named
    messages   INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    first_seq  INTEGER NOT NULL,
    created_us INTEGER NOT NULL,
    PRIMARY KEY (producer, epoch, "write", queue)
) WITHOUT ROWID;

CREATE INDEX IF NOT EXISTS queue_commits_by_time ON queue_commits (created_us);
