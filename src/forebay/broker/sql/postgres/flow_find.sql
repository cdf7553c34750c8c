-- One flow.
SELECT name, worker, report, updated_us, is_paused, resumes FROM forebay.flows WHERE name = %(name)b::text
