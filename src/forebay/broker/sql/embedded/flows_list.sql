-- All flows, by name.
SELECT name, worker, report, updated_us, is_paused, resumes FROM flows ORDER BY name
