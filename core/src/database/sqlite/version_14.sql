-- Version 14. A job that is given back gives its user the turn back that it took.
ALTER TABLE jobs ADD COLUMN claim_number INTEGER;                        -- of the last claim: what users.served became by it
-- While it runs: what users.served was before. While it waits: as long as users.served is this, others of its user go before it.
ALTER TABLE jobs ADD COLUMN served_before INTEGER;
