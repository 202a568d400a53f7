-- Version 12. What has come of a video in blocks counts before it is put together.
ALTER TABLE uploads ADD COLUMN waiting_bytes INTEGER NOT NULL DEFAULT 0; -- bytes of blocks that wait for their list
