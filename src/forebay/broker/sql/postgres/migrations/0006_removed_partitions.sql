-- Partitions that are empty for long can be removed. What a queue has to remember of them is the last seq of theirs that
-- retention has removed: a reader that asks for it must be told that it is gone.
ALTER TABLE forebay.queues ADD COLUMN gone_seq bigint NOT NULL DEFAULT 0;
