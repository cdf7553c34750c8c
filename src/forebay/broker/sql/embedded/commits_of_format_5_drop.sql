-- Its rows are in queue_commits now.
DROP TABLE stage_commits
