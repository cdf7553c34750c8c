-- A partition begins behind a seq.
UPDATE partitions SET floor_seq = max(floor_seq, ?) WHERE id = ?
