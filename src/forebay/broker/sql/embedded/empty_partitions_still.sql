-- Those of some partitions that are still empty.
SELECT * FROM ({empty_partitions}) WHERE id IN (SELECT value FROM json_each(:numbers))
