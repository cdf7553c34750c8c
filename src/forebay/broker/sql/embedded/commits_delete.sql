-- A queue that is made again does not know the commits of the old one.
DELETE FROM queue_commits WHERE queue = ?
