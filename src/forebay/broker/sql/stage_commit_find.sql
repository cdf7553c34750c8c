-- What the commit of an epoch did.
SELECT outcome FROM forebay.stage_commits WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text
