-- Version 11. A job that is given back gives its user the turn back that it took. The program before neither writes nor reads it: a
-- claim that it makes counts for good, as users.served is another number than claim_number then.
ALTER TABLE jobs ADD COLUMN claim_number BIGINT;                         -- of the last claim: what users.served became by it
-- While it runs: what users.served was before. While it waits: as long as users.served is this, others of its user go before it.
ALTER TABLE jobs ADD COLUMN served_before BIGINT;
CREATE INDEX jobs_standing_back ON jobs (user_id, seq) WHERE state = 'queued' AND NOT deleted AND served_before IS NOT NULL;
