-- The stages of a write: their queues, and what they hold.
SELECT stage_id, queue, messages, size_bytes, checksum FROM forebay.stages
WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text AND write = %(write)b::text
