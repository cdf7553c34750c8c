-- Messages that were accepted and cannot be read any more.
SELECT l.queue_id, p.name, l.first_seq, l.last_seq, l.messages, l.reason, l.found_us
FROM lost_messages l
LEFT JOIN partitions p ON p.id = l.partition_id
ORDER BY l.queue_id, l.first_seq
