-- Partitions of a queue with messages that a group has not finished; those that got theirs first come first.
SELECT p.id
FROM partitions p
LEFT JOIN states s ON s.partition_id = p.id AND s.group_id = :group_id
WHERE p.queue_id = :queue_id AND p.last_seq > max(coalesce(s.cursor_seq, :start_seq), p.floor_seq)
ORDER BY p.last_seq
