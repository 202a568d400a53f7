-- Version 5. What a scene that is being trained looks like. A picture is there only while its job runs. The program before makes none;
-- when it ends an attempt, the picture goes all the same.
CREATE TABLE live_pictures (
    job_id  TEXT COLLATE "C" PRIMARY KEY REFERENCES jobs (job_id) ON DELETE CASCADE,
    picture BYTEA NOT NULL,               -- JPEG
    made_at BIGINT NOT NULL
);

-- Whatever ends an attempt takes its picture with it.
CREATE FUNCTION attempt_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM live_pictures WHERE job_id = NEW.job_id;
    RETURN NULL;
END $$;
CREATE TRIGGER attempt_ended AFTER UPDATE OF state ON jobs FOR EACH ROW
WHEN (OLD.state = 'running' AND NEW.state <> 'running') EXECUTE FUNCTION attempt_ended();
