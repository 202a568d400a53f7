-- Version 7. Who users are for other services, by which they sign in (OpenID Connect). The program before does not know them.
CREATE TABLE identities (
    issuer  TEXT COLLATE "C" NOT NULL,              -- the service that knows them
    subject TEXT COLLATE "C" NOT NULL,              -- what it calls them, for ever
    user_id TEXT COLLATE "C" NOT NULL REFERENCES users,
    PRIMARY KEY (issuer, subject)
);
CREATE INDEX identities_of_user ON identities (user_id);
