-- A partition, and how a group stands in it.
SELECT {partition_columns}, s.state
FROM partitions p LEFT JOIN states s ON s.group_id = ? AND s.partition_id = p.id
WHERE p.id = ?
