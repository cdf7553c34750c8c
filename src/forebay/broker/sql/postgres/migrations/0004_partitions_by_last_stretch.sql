-- Partitions are found by the stretch of 1024 seqs that their last message is in, and no longer by its seq: an index on
-- what every push changes made each of them write to all of the table's indexes.

ALTER TABLE forebay.partitions ADD COLUMN last_stretch bigint NOT NULL GENERATED ALWAYS AS (last_seq / 1024) STORED;
DROP INDEX forebay.partitions_by_last_seq;
CREATE INDEX partitions_by_last_stretch ON forebay.partitions (queue_id, last_stretch);
