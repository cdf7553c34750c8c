-- A transaction of which no queue has records any more.
DELETE FROM committed_tags WHERE tag = :tag AND NOT EXISTS (SELECT 1 FROM tagged_records WHERE tag = :tag)
