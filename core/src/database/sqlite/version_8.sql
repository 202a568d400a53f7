-- Version 8. What a scene that is being trained looks like. A picture is there only while its job runs.
CREATE TABLE live_pictures (
    job_id  TEXT PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
    picture BLOB NOT NULL,                -- JPEG
    made_at INTEGER NOT NULL
) STRICT;

-- Whatever ends an attempt takes its picture with it.
CREATE TRIGGER attempt_ended AFTER UPDATE OF state ON jobs WHEN OLD.state = 'running' AND NEW.state <> 'running'
BEGIN
    DELETE FROM live_pictures WHERE job_id = NEW.job_id;
END;
