-- Where one group stands in one partition, or a seq if that is further on, and the record that this stands in or behind.
SELECT p.name, p.pushed, p.floor_seq, max(coalesce(s.cursor_seq, g.start_seq, 0), :beyond_seq, p.floor_seq) AS seq, s.state,
    b.first_seq, b.last_seq, b.count, b.before, b.record_seq, b.position
FROM partitions p
LEFT JOIN groups g ON g.id = :group_id
LEFT JOIN states s ON s.group_id = g.id AND s.partition_id = p.id
LEFT JOIN blocks b ON b.partition_id = p.id AND b.first_seq = (
    SELECT max(l.first_seq) FROM blocks l
    WHERE l.partition_id = p.id AND l.first_seq <= max(coalesce(s.cursor_seq, g.start_seq, 0), :beyond_seq, p.floor_seq)
)
WHERE p.id = :partition_id
