-- Version 2. Which list of blocks the content was put together by (SHA-256 of their names); NULL if it came whole.
ALTER TABLE uploads ADD COLUMN block_list BLOB;
