-- The highest number that a queue ever had.
SELECT seq FROM sqlite_sequence WHERE name = 'queues'
