-- Lock the stages of a commit.
SELECT stage_id FROM forebay.stages
WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text AND stage_id = ANY (%(stage_ids)b::text[])
ORDER BY stage_id
FOR UPDATE
