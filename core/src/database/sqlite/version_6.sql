-- Version 6. What lets people sign in to the web application.
CREATE TABLE passwords (
    user_id    TEXT PRIMARY KEY REFERENCES users,
    hash       TEXT NOT NULL,             -- Argon2id, with its parameters and salt, as PHC writes it
    changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE invitations (
    token         BLOB PRIMARY KEY,       -- SHA-256 of what the link has
    user_id       TEXT NOT NULL REFERENCES users,
    sets_password INTEGER NOT NULL,       -- whether a password is to be chosen; else it signs in as it is
    created_at    INTEGER NOT NULL,
    expires_at    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX invitations_of_user ON invitations (user_id);

CREATE TABLE sessions (
    token      BLOB PRIMARY KEY,          -- SHA-256 of what the browser has
    user_id    TEXT NOT NULL REFERENCES users,
    agent      TEXT NOT NULL,             -- what the browser calls itself, shortened
    created_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL,
    idle_at    INTEGER NOT NULL,          -- when it ends unless it is used
    expires_at INTEGER NOT NULL           -- when it ends in any case
) STRICT, WITHOUT ROWID;
CREATE INDEX sessions_of_user ON sessions (user_id);
