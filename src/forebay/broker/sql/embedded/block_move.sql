-- A block is elsewhere, or lost.
UPDATE blocks SET position = ? WHERE partition_id = ? AND first_seq = ?
