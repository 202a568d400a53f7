-- Version 9. What has come of a video in blocks counts before it is put together. The program before neither writes nor reads it.
ALTER TABLE uploads ADD COLUMN waiting_bytes BIGINT NOT NULL DEFAULT 0;  -- bytes of blocks that wait for their list
