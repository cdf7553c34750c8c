-- All stages.
SELECT stage_id FROM stages
