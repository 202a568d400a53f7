-- Version 3. What went wrong while a job was worked on, and until when it rests because of that.
ALTER TABLE jobs ADD COLUMN disturbances INTEGER NOT NULL DEFAULT 0;
ALTER TABLE jobs ADD COLUMN reach REAL NOT NULL DEFAULT 0;   -- the furthest that an attempt has come (Progress::reach)
ALTER TABLE jobs ADD COLUMN rest_until INTEGER;              -- on the clock of leases, of the run of the machine rest_boot
ALTER TABLE jobs ADD COLUMN rest_boot TEXT;
