-- What an older Forebay knows of removed partitions, for their queues.
UPDATE queues
SET gone_seq = coalesce((SELECT max(floor_seq) FROM removed_partitions r WHERE r.queue_id = queues.id), 0)
