-- Pause a flow, or resume it; one that no worker has reported yet is noted for when one does.
INSERT INTO forebay.flows (name, is_paused) VALUES (%(name)b::text, %(is_paused)b::boolean)
ON CONFLICT (name) DO UPDATE SET
    is_paused = excluded.is_paused,
    resumes = flows.resumes + CASE WHEN excluded.is_paused THEN 0 ELSE 1 END
RETURNING name, worker, report, updated_us, is_paused, resumes
