-- Of a row p of partitions, what a `Partition` is made of, column by column.
p.id, p.name, p.last_seq, p.newest_us, p.floor_seq, p.pushed,
EXISTS (SELECT 1 FROM deleted_messages WHERE partition_id = p.id)
    OR EXISTS (SELECT 1 FROM blocks INDEXED BY lost_blocks WHERE partition_id = p.id AND position < 0),
p.queue_id
