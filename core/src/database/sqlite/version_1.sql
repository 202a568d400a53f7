-- Version 1. Times are microseconds: *_at since 1970, lease_until on the clock of leases (see clock.rs).
CREATE TABLE users (
    user_id    TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    tier       TEXT NOT NULL CHECK (tier IN ('free', 'enterprise')),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    prefix     TEXT PRIMARY KEY,
    user_id    TEXT NOT NULL REFERENCES users,
    name       TEXT NOT NULL,
    mac        BLOB NOT NULL,             -- HMAC-SHA256 of the key under the pepper, which is not in the database
    created_at INTEGER NOT NULL,
    last_used  INTEGER,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX api_keys_of_user ON api_keys (user_id, created_at);

CREATE TABLE uploads (
    blob_name  TEXT PRIMARY KEY,
    user_id    TEXT NOT NULL REFERENCES users,
    expires_at INTEGER NOT NULL,          -- no transfer may begin later
    version    INTEGER,                   -- which file is its content; NULL before the first complete transfer
    size       INTEGER,
    sha256     BLOB,
    file_name  TEXT,
    touched_at INTEGER NOT NULL,          -- when it was made or its content last changed
    submitted  INTEGER NOT NULL DEFAULT 0,
    deleted    INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
CREATE INDEX uploads_unused ON uploads (touched_at) WHERE submitted = 0 AND deleted = 0;
CREATE INDEX uploads_deleted ON uploads (user_id) WHERE deleted = 1;
CREATE INDEX uploads_of_user ON uploads (user_id);

CREATE TABLE jobs (
    seq              INTEGER PRIMARY KEY AUTOINCREMENT,   -- dispatch order
    job_id           TEXT NOT NULL UNIQUE,
    user_id          TEXT NOT NULL REFERENCES users,
    blob_name        TEXT NOT NULL REFERENCES uploads,
    title            TEXT NOT NULL,
    uploaded_at      INTEGER NOT NULL,
    public           INTEGER NOT NULL,
    method           TEXT NOT NULL,
    gaussians        INTEGER NOT NULL,
    steps            INTEGER NOT NULL,
    apriltag_size_mm REAL,
    remove_background INTEGER NOT NULL,
    -- camera_data: what the user set goes before what the reconstruction found, and that before the default
    asked_camera_type TEXT,
    user_camera_type  TEXT,
    user_view        TEXT,
    found_view       TEXT,
    -- what it is doing
    state            TEXT NOT NULL CHECK (state IN ('queued', 'running', 'finished', 'failed')),
    stage            TEXT,
    stage_fraction   REAL NOT NULL DEFAULT 0,
    percent          INTEGER,
    attempt          INTEGER NOT NULL DEFAULT 0,          -- counts claims: the fencing token
    crashes          INTEGER NOT NULL DEFAULT 0,
    lease_owner      TEXT,                                -- the process that holds the job
    lease_worker     TEXT,
    lease_boot       TEXT,
    lease_until      INTEGER,
    deleted          INTEGER NOT NULL DEFAULT 0,
    -- what it has come to
    has_ply          INTEGER NOT NULL DEFAULT 0,
    has_spz          INTEGER NOT NULL DEFAULT 0,
    warnings         TEXT NOT NULL DEFAULT '[]',
    failure_code     TEXT,
    failure_message  TEXT,
    started_at       INTEGER,
    finished_at      INTEGER,
    updated_at       INTEGER NOT NULL,
    version          INTEGER NOT NULL DEFAULT 1,
    CHECK ((state = 'running') = (lease_owner IS NOT NULL)),
    CHECK ((state = 'finished') = (has_ply AND has_spz)),
    CHECK ((state = 'finished') = (percent IS 100))
) STRICT;
CREATE INDEX jobs_of_user ON jobs (user_id, uploaded_at DESC, job_id DESC) WHERE deleted = 0;
CREATE INDEX jobs_waiting ON jobs (seq) WHERE state = 'queued' AND deleted = 0;
CREATE INDEX jobs_running ON jobs (seq) WHERE state = 'running';
CREATE INDEX jobs_deleted ON jobs (seq) WHERE deleted = 1;
CREATE INDEX jobs_of_blob ON jobs (blob_name);

CREATE TABLE artifacts (
    job_id  TEXT NOT NULL REFERENCES jobs (job_id) ON DELETE CASCADE,
    kind    TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    size    INTEGER NOT NULL,
    PRIMARY KEY (job_id, kind)
) STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
    user_id    TEXT NOT NULL REFERENCES users,
    key        TEXT NOT NULL,
    body_hash  BLOB NOT NULL,
    answer     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (user_id, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX idempotency_by_age ON idempotency (created_at);
