-- A partition got messages.
UPDATE partitions
SET last_seq = ?, newest_us = max(newest_us, ?), pushed = pushed + ?, size = size + ?
WHERE id = ?
