-- Forget commits that no producer repeats any more.
DELETE FROM queue_commits WHERE created_us < ?
