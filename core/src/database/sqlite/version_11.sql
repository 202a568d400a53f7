-- Version 11. How long a job goes on.
ALTER TABLE jobs ADD COLUMN stage_ends_at INTEGER;                       -- when its stage will be done, as its worker reckons
