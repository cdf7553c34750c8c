-- Partitions that a lease covers, how its group stands there, and the group's name.
SELECT {partition_columns}, s.state, g.name
FROM states s
JOIN partitions p ON p.id = s.partition_id
JOIN groups g ON g.id = s.group_id
WHERE s.lease_id = ? AND s.lease_id <> ''
