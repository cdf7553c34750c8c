-- Seqs behind one that cannot be read any more.
SELECT first_seq, last_seq
FROM blocks INDEXED BY lost_blocks
WHERE partition_id = ? AND position < 0 AND last_seq > ?
