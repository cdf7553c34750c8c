-- Forget stages of an epoch: of one write or all, of one queue or all.
DELETE FROM forebay.stages
WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text
    AND (%(all_writes)b::boolean OR write = %(write)b::text)
    AND (%(queue)b::text IS NULL OR queue = %(queue)b::text)
RETURNING stage_id
