-- Rows that wait for their commit, and the epochs that are committed.

CREATE TABLE forebay.stages (
    stage_id text COLLATE "C" PRIMARY KEY,
    producer text COLLATE "C" NOT NULL,
    epoch text COLLATE "C" NOT NULL,
    part text NOT NULL,
    queue text COLLATE "C" NOT NULL,
    messages bigint NOT NULL,
    size_bytes bigint NOT NULL,
    created_us bigint NOT NULL,
    body bytea NOT NULL
);
CREATE INDEX stages_by_epoch ON forebay.stages (producer, epoch);
CREATE INDEX stages_by_time ON forebay.stages (created_us);
ALTER TABLE forebay.stages ALTER COLUMN body SET STORAGE EXTERNAL;

CREATE TABLE forebay.stage_commits (
    producer text COLLATE "C" NOT NULL,
    epoch text COLLATE "C" NOT NULL,
    outcome bytea NOT NULL,
    created_us bigint NOT NULL,
    PRIMARY KEY (producer, epoch)
);
CREATE INDEX stage_commits_by_time ON forebay.stage_commits (created_us);
