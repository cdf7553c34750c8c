-- All flows, by name.
SELECT name, worker, report, updated_us, is_paused, resumes FROM forebay.flows ORDER BY name
