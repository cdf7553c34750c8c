-- A transaction is committed.
INSERT INTO committed_tags (tag) VALUES (?)
