-- Version 6. Passkeys: the public halves of keys with which users sign in. The program before knows neither table.
CREATE TABLE passkeys (
    credential BYTEA PRIMARY KEY,          -- by what the device names it
    user_id    TEXT COLLATE "C" NOT NULL REFERENCES users,
    name       TEXT NOT NULL,
    host       TEXT NOT NULL,             -- for which it was made
    public_key BYTEA NOT NULL,             -- as COSE has it
    sign_count BIGINT NOT NULL,          -- the device's own counter; most leave it at 0
    created_at BIGINT NOT NULL,
    last_used  BIGINT
);
CREATE INDEX passkeys_of_user ON passkeys (user_id, created_at);

-- What was answered rightly, so that no second answer counts.
CREATE TABLE used_challenges (
    challenge    BYTEA PRIMARY KEY,        -- SHA-256
    forgotten_at BIGINT NOT NULL         -- it holds no more, and can be removed
);
