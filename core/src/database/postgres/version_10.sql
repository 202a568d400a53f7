-- Version 10. Which service these rows are: the storage of many machines has the same id. The program before neither writes nor reads it.
CREATE TABLE service_id (
    one BIGINT PRIMARY KEY CHECK (one = 1),          -- there is one row at most
    id  TEXT NOT NULL
);
