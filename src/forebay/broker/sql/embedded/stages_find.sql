-- What a producer has staged for a write of an epoch.
SELECT stage_id, queue, messages, size, checksum FROM stages WHERE producer = ? AND epoch = ? AND "write" = ?
