-- Whether a transaction was committed.
SELECT 1 FROM committed_tags WHERE tag = ?
