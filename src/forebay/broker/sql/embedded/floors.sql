-- Up to where partitions of a queue are removed, those that are gone included.
SELECT name, max(floor_seq)
FROM (SELECT name, floor_seq FROM partitions WHERE queue_id = :queue_id AND floor_seq > 0 UNION ALL SELECT name, floor_seq
    FROM removed_partitions WHERE queue_id = :queue_id)
GROUP BY name
