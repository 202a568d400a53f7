-- Version 5. What is left of the rates at which users may ask. Only servers that share their rows with others write it: one alone
-- counts in its memory.
CREATE TABLE rates (
    user_id TEXT NOT NULL REFERENCES users,
    class   TEXT NOT NULL,                -- what is counted (Rate::class)
    tokens  REAL NOT NULL,                -- what was left at the time `at`
    taken   INTEGER NOT NULL,             -- what the last who asked was given
    at      INTEGER NOT NULL,
    PRIMARY KEY (user_id, class)
) STRICT, WITHOUT ROWID;
