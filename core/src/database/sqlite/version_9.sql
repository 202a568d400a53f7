-- Version 9. Passkeys: the public halves of keys with which users sign in.
CREATE TABLE passkeys (
    credential BLOB PRIMARY KEY,          -- by what the device names it
    user_id    TEXT NOT NULL REFERENCES users,
    name       TEXT NOT NULL,
    host       TEXT NOT NULL,             -- for which it was made
    public_key BLOB NOT NULL,             -- as COSE has it
    sign_count INTEGER NOT NULL,          -- the device's own counter; most leave it at 0
    created_at INTEGER NOT NULL,
    last_used  INTEGER
) STRICT, WITHOUT ROWID;
CREATE INDEX passkeys_of_user ON passkeys (user_id, created_at);

-- What was answered rightly, so that no second answer counts.
CREATE TABLE used_challenges (
    challenge    BLOB PRIMARY KEY,        -- SHA-256
    forgotten_at INTEGER NOT NULL         -- it holds no more, and can be removed
) STRICT, WITHOUT ROWID;
