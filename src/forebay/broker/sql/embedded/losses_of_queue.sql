-- What is lost of a queue, or of some partitions of it.
SELECT l.first_seq, l.last_seq, l.messages
FROM lost_messages l
LEFT JOIN partitions p ON p.id = l.partition_id
WHERE l.queue_id = :queue_id AND (:partitions = '[]' OR p.name IS NULL OR p.name IN (SELECT value FROM json_each(:partitions)))
ORDER BY l.first_seq
