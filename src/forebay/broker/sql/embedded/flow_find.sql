-- One flow.
SELECT name, worker, report, updated_us, is_paused, resumes FROM flows WHERE name = :name
