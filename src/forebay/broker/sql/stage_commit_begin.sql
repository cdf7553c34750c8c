-- Claim an epoch. Whoever comes second waits for the first, and then gets no row.
INSERT INTO forebay.stage_commits (producer, epoch, outcome, created_us)
VALUES (%(producer)b::text, %(epoch)b::text, ''::bytea, coalesce(%(now_us)b::bigint, forebay.now_us()))
ON CONFLICT (producer, epoch) DO NOTHING
RETURNING created_us
