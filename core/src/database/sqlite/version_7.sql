-- Version 7. Addresses that are told when a job ends (docs/rest.md, rule 93), and what they are to be told.
CREATE TABLE webhooks (
    webhook_id TEXT PRIMARY KEY,          -- the secret follows from it and from what is not in the database
    user_id    TEXT NOT NULL REFERENCES users ON DELETE CASCADE,
    url        TEXT NOT NULL,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX webhooks_of_user ON webhooks (user_id, created_at);

CREATE TABLE webhook_deliveries (
    seq             INTEGER PRIMARY KEY AUTOINCREMENT,    -- the order in which things happened
    delivery_id     TEXT NOT NULL UNIQUE,
    webhook_id      TEXT NOT NULL REFERENCES webhooks ON DELETE CASCADE,
    job_id          TEXT NOT NULL,
    event           TEXT NOT NULL CHECK (event IN ('job.finished', 'job.failed', 'job.cancelled')),
    created_at      INTEGER NOT NULL,
    state           TEXT NOT NULL DEFAULT 'pending' CHECK (state IN ('pending', 'delivered', 'failed')),
    attempts        INTEGER NOT NULL DEFAULT 0,           -- since it happened, or since it was asked for again
    next_at         INTEGER NOT NULL,                     -- not before this
    taken_until     INTEGER,                              -- until then somebody is at it
    last_attempt_at INTEGER,
    response_status INTEGER,
    error           TEXT
) STRICT;
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_at) WHERE state = 'pending';
CREATE INDEX webhook_deliveries_taken ON webhook_deliveries (webhook_id, taken_until) WHERE taken_until IS NOT NULL;
CREATE INDEX webhook_deliveries_of_webhook ON webhook_deliveries (webhook_id, seq);
CREATE INDEX webhook_deliveries_of_job ON webhook_deliveries (job_id);
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (created_at) WHERE state <> 'pending';

-- Whatever ends a job notes in the same transaction who is to be told: none can forget it, and a killed process loses nothing.
-- Ids are random UUIDs of version 4.
CREATE TRIGGER job_ended AFTER UPDATE OF state ON jobs
WHEN NEW.state IN ('finished', 'failed') AND NEW.state <> OLD.state AND NEW.deleted = 0
BEGIN
    INSERT INTO webhook_deliveries (delivery_id, webhook_id, job_id, event, created_at, next_at)
    SELECT lower(hex(randomblob(4)) || '-' || hex(randomblob(2)) || '-4' || substr(hex(randomblob(2)), 2) || '-'
            || substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || hex(randomblob(6))),
        webhook_id, NEW.job_id,
        CASE WHEN NEW.state = 'finished' THEN 'job.finished' WHEN NEW.failure_code = 'cancelled' THEN 'job.cancelled'
            ELSE 'job.failed' END,
        NEW.updated_at, NEW.updated_at
    FROM webhooks WHERE user_id = NEW.user_id;
END;

-- Nobody is to be told of a job that is gone.
CREATE TRIGGER job_deleted AFTER UPDATE OF deleted ON jobs WHEN NEW.deleted = 1
BEGIN
    DELETE FROM webhook_deliveries WHERE job_id = NEW.job_id;
END;
