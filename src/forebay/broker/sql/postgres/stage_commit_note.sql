-- Remember what a commit did with a queue.
UPDATE forebay.queue_commits
SET messages = %(messages)b::bigint, duplicates = %(duplicates)b::bigint, first_seq = %(first_seq)b::bigint
WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text AND write = %(write)b::text AND queue = %(queue)b::text
