-- Access (forebay.access): API keys, sessions of the web page, admin actions. Times are microseconds since 1970 UTC.

CREATE TABLE api_keys (
    key_id            TEXT PRIMARY KEY,
    name              TEXT NOT NULL,
    digest            TEXT NOT NULL UNIQUE,              -- SHA-256 of the key, in hexadecimal digits
    previous_digest   TEXT NOT NULL DEFAULT '',          -- of the text before the last rotation
    previous_until_us INTEGER NOT NULL DEFAULT 0,        -- until when that counts
    scopes            TEXT NOT NULL,                     -- JSON: read, write, consume, admin
    queues            TEXT NOT NULL,                     -- JSON: patterns; none: all queues
    made_by           TEXT NOT NULL,
    created_us        INTEGER NOT NULL,
    expires_us        INTEGER,                           -- NULL: never
    revoked_us        INTEGER,                           -- NULL: it is not
    used_us           INTEGER                            -- NULL: never
) WITHOUT ROWID;

CREATE TABLE key_sessions (
    session_digest TEXT PRIMARY KEY,                     -- SHA-256 of what the cookie holds
    key_digest     TEXT NOT NULL,                        -- of the key that was signed in with, also one of a keys file
    created_us     INTEGER NOT NULL,
    expires_us     INTEGER NOT NULL
) WITHOUT ROWID;

CREATE INDEX key_sessions_by_end ON key_sessions (expires_us);
CREATE INDEX key_sessions_by_time ON key_sessions (created_us);

CREATE TABLE audit_log (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    at_us    INTEGER NOT NULL,
    key_id   TEXT NOT NULL,                              -- empty where no keys were in force
    key_name TEXT NOT NULL,
    method   TEXT NOT NULL,
    route    TEXT NOT NULL,                              -- with its parameters in braces
    subject  TEXT NOT NULL,                              -- what it was done to
    address  TEXT NOT NULL,                              -- of the client
    status   INTEGER NOT NULL                            -- of the answer
);

CREATE INDEX audit_log_by_time ON audit_log (at_us);

CREATE TABLE access_numbers (
    name  TEXT PRIMARY KEY,                              -- version: raised by every change; in_force: keys are needed
    value INTEGER NOT NULL
) WITHOUT ROWID;
