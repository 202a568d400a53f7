-- Version 3. What lets people sign in to the web application. The program before knows none of these tables, and serves no pages.
CREATE TABLE passwords (
    user_id    TEXT COLLATE "C" PRIMARY KEY REFERENCES users,
    hash       TEXT NOT NULL,             -- Argon2id, with its parameters and salt, as PHC writes it
    changed_at BIGINT NOT NULL
);

CREATE TABLE invitations (
    token         BYTEA PRIMARY KEY,      -- SHA-256 of what the link has
    user_id       TEXT COLLATE "C" NOT NULL REFERENCES users,
    sets_password BOOLEAN NOT NULL,       -- whether a password is to be chosen; else it signs in as it is
    created_at    BIGINT NOT NULL,
    expires_at    BIGINT NOT NULL
);
CREATE INDEX invitations_of_user ON invitations (user_id);

CREATE TABLE sessions (
    token      BYTEA PRIMARY KEY,         -- SHA-256 of what the browser has
    user_id    TEXT COLLATE "C" NOT NULL REFERENCES users,
    agent      TEXT NOT NULL,             -- what the browser calls itself, shortened
    created_at BIGINT NOT NULL,
    seen_at    BIGINT NOT NULL,
    idle_at    BIGINT NOT NULL,           -- when it ends unless it is used
    expires_at BIGINT NOT NULL            -- when it ends in any case
) WITH (fillfactor = 80);
CREATE INDEX sessions_of_user ON sessions (user_id);
