-- Remember what a commit did.
UPDATE forebay.stage_commits SET outcome = %(outcome)b::bytea
WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text
