-- How many messages the blocks of a partition hold behind a seq.
SELECT coalesce(sum(count), 0) FROM blocks WHERE partition_id = ? AND first_seq > ? AND position >= 0
