-- Version 13. Which service these rows are: the storage of many machines has the same id.
CREATE TABLE service_id (
    one INTEGER PRIMARY KEY CHECK (one = 1),         -- there is one row at most
    id  TEXT NOT NULL
) STRICT;
