-- Forget stages that were never committed.
DELETE FROM stages WHERE created_us < ? RETURNING stage_id
