-- Pause a flow, or resume it; one that no worker has reported yet is noted for when one does.
INSERT INTO flows (name, is_paused) VALUES (:name, :is_paused)
ON CONFLICT (name) DO UPDATE SET
    is_paused = excluded.is_paused,
    resumes = flows.resumes + (NOT excluded.is_paused)
