-- Remember up to where the seqs of a removed partition are gone.
INSERT OR REPLACE INTO removed_partitions VALUES (?, ?, ?)
