-- Keep a stage.
INSERT INTO forebay.stages (stage_id, producer, epoch, part, write, queue, messages, size_bytes, checksum, created_us, body)
VALUES (%(stage_id)b::text, %(producer)b::text, %(epoch)b::text, %(part)b::text, %(write)b::text, %(queue)b::text,
    %(messages)b::bigint, %(size_bytes)b::bigint, %(checksum)b::bigint, coalesce(%(now_us)b::bigint, forebay.now_us()),
    %(body)b::bytea)
ON CONFLICT (stage_id) DO NOTHING
