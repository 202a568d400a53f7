-- Version 8. How long a job goes on. The program before neither writes nor reads it.
ALTER TABLE jobs ADD COLUMN stage_ends_at BIGINT;                        -- when its stage will be done, as its worker reckons
