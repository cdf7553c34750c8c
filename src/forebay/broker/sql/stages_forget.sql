-- Forget all stages of an epoch.
DELETE FROM forebay.stages WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text RETURNING stage_id
