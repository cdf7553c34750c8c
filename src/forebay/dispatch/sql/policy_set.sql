-- Keep an auto-resume policy in place of one of the same name.
INSERT INTO forebay.resume_policies (name, policy, updated_us)
VALUES (:name, :policy, :now_us)
ON CONFLICT (name) DO UPDATE SET policy = excluded.policy, updated_us = excluded.updated_us
