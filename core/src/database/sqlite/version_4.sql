-- Version 4. Turns between users, how long a job was worked on, and answers that are forgotten with their job.
ALTER TABLE users ADD COLUMN served INTEGER NOT NULL DEFAULT 0;          -- number of the last claim of one of the user's jobs
ALTER TABLE jobs ADD COLUMN worked_micros INTEGER NOT NULL DEFAULT 0;    -- in all attempts, as far as heart-beats tell
ALTER TABLE idempotency ADD COLUMN job_id TEXT;
UPDATE idempotency SET job_id = json_extract(answer, '$.job_id');
DELETE FROM idempotency WHERE NOT EXISTS (SELECT 1 FROM jobs WHERE jobs.job_id = idempotency.job_id AND deleted = 0);
CREATE INDEX idempotency_of_job ON idempotency (job_id);
CREATE INDEX jobs_waiting_of_user ON jobs (user_id, seq) WHERE state = 'queued' AND deleted = 0;
