-- A block of a partition: its place in the log, and how many messages came before it.
INSERT INTO blocks (partition_id, first_seq, last_seq, count, before, record_seq, position)
SELECT partition_id, first_seq, last_seq, count, before + (SELECT pushed FROM partitions WHERE id = partition_id),
    record_seq, position
FROM (SELECT ? AS partition_id, ? AS first_seq, ? AS last_seq, ? AS count, ? AS before, ? AS record_seq,
    ? AS position)
