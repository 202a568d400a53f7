-- Version 2. The program before knows neither table: it counts rates by itself, and asks PostgreSQL what became of a COMMIT.
--
-- What is left of the rates at which users may ask, over all servers.
CREATE TABLE rates (
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users,
    class   TEXT COLLATE "C" NOT NULL,    -- what is counted (Rate::class)
    tokens  DOUBLE PRECISION NOT NULL,    -- what was left at the time `at`
    taken   BIGINT NOT NULL,              -- what the last who asked was given
    at      BIGINT NOT NULL,
    PRIMARY KEY (user_id, class)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);

-- The last change that each transaction made which a process has at the same time as others: what tells whether a COMMIT was done
-- whose answer was lost. Those of processes that are gone are removed.
CREATE TABLE marks (
    name   TEXT COLLATE "C" PRIMARY KEY,
    number BIGINT NOT NULL,
    set_at BIGINT NOT NULL
) WITH (fillfactor = 50);
