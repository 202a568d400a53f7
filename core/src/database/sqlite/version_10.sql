-- Version 10. Who users are for other services, by which they sign in (OpenID Connect).
CREATE TABLE identities (
    issuer  TEXT NOT NULL,              -- the service that knows them
    subject TEXT NOT NULL,              -- what it calls them, for ever
    user_id TEXT NOT NULL REFERENCES users,
    PRIMARY KEY (issuer, subject)
) STRICT, WITHOUT ROWID;
CREATE INDEX identities_of_user ON identities (user_id);
