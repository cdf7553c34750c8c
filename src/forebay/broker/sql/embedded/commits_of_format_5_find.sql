-- Whether there is the table that a Forebay of format 5 made.
SELECT 1 FROM sqlite_schema WHERE name = 'stage_commits'
