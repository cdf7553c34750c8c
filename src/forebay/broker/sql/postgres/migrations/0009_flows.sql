-- Flows: what their workers say of them, and what people want of them. Without a foreign key: a flow's queues come and
-- go without it.

CREATE TABLE forebay.flows (
    name       text COLLATE "C" PRIMARY KEY,
    worker     text NOT NULL DEFAULT '',
    report     bytea NOT NULL DEFAULT '{}',
    updated_us bigint NOT NULL DEFAULT 0,
    is_paused  boolean NOT NULL DEFAULT false,
    resumes    bigint NOT NULL DEFAULT 0
);
