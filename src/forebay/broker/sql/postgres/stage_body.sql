-- The rows of a stage.
SELECT body FROM forebay.stages WHERE stage_id = %(stage_id)b::text
