-- A partition.
SELECT {partition_columns}
FROM partitions p WHERE p.id = ?
