-- Access (forebay.access): API keys, sessions of the web page, admin actions. Times are microseconds since 1970 UTC.

CREATE TABLE forebay.api_keys (
    key_id            text COLLATE "C" PRIMARY KEY,
    name              text COLLATE "C" NOT NULL,
    digest            text COLLATE "C" NOT NULL UNIQUE,              -- SHA-256 of the key, in hexadecimal digits
    previous_digest   text COLLATE "C" NOT NULL DEFAULT '',          -- of the text before the last rotation
    previous_until_us bigint NOT NULL DEFAULT 0,        -- until when that counts
    scopes            text COLLATE "C" NOT NULL,                     -- JSON: read, write, consume, admin
    queues            text COLLATE "C" NOT NULL,                     -- JSON: patterns; none: all queues
    made_by           text COLLATE "C" NOT NULL,
    created_us        bigint NOT NULL,
    expires_us        bigint,                           -- NULL: never
    revoked_us        bigint,                           -- NULL: it is not
    used_us           bigint                            -- NULL: never
);

CREATE TABLE forebay.key_sessions (
    session_digest text COLLATE "C" PRIMARY KEY,                     -- SHA-256 of what the cookie holds
    key_digest     text COLLATE "C" NOT NULL,                        -- of the key that was signed in with, also one of a keys file
    created_us     bigint NOT NULL,
    expires_us     bigint NOT NULL
);

CREATE INDEX key_sessions_by_end ON forebay.key_sessions (expires_us);
CREATE INDEX key_sessions_by_time ON forebay.key_sessions (created_us);

CREATE TABLE forebay.audit_log (
    number   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us    bigint NOT NULL,
    key_id   text COLLATE "C" NOT NULL,                              -- empty where no keys were in force
    key_name text COLLATE "C" NOT NULL,
    method   text COLLATE "C" NOT NULL,
    route    text COLLATE "C" NOT NULL,                              -- with its parameters in braces
    subject  text COLLATE "C" NOT NULL,                              -- what it was done to
    address  text COLLATE "C" NOT NULL,                              -- of the client
    status   bigint NOT NULL                            -- of the answer
);

CREATE INDEX audit_log_by_time ON forebay.audit_log (at_us);

CREATE TABLE forebay.access_numbers (
    name  text COLLATE "C" PRIMARY KEY,                              -- version: raised by every change; in_force: keys are needed
    value bigint NOT NULL
);
