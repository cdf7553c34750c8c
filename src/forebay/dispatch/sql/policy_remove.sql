-- Forget an auto-resume policy.
DELETE FROM forebay.resume_policies WHERE name = :name RETURNING name
