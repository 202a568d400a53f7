-- The role that KEDA counts the queue with. It sees in which state jobs are and until when they rest, and nothing of whose they are.
-- psql ADDRESS --set password=… -f queue-reader.sql, as who owns the tables; again after the password, or this file, has changed.
SELECT 'CREATE ROLE queue_reader LOGIN' WHERE NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = 'queue_reader') \gexec
ALTER ROLE queue_reader PASSWORD :'password' CONNECTION LIMIT 5;
ALTER ROLE queue_reader SET statement_timeout = '5s';
ALTER ROLE queue_reader SET default_transaction_read_only = on;
REVOKE ALL ON ALL TABLES IN SCHEMA public FROM queue_reader;
GRANT USAGE ON SCHEMA public TO queue_reader;
GRANT SELECT (state, deleted, rest_until) ON jobs TO queue_reader;
