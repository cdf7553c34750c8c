-- A commit of stages is known by its queue too, and by the name of the write where one epoch writes to one queue several
-- times. What its rows held is remembered, so that a repeat can be told from another write. What was committed before has
-- no content: it counts as equal.
ALTER TABLE forebay.stages
    ADD COLUMN write text COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN checksum bigint NOT NULL DEFAULT 0;

CREATE TABLE forebay.queue_commits (
    producer text COLLATE "C" NOT NULL,
    epoch text COLLATE "C" NOT NULL,
    write text COLLATE "C" NOT NULL,
    queue text COLLATE "C" NOT NULL,
    rows bigint,
    size_bytes bigint,
    checksum bigint,
    request text NOT NULL,
    messages bigint NOT NULL,
    duplicates bigint NOT NULL,
    first_seq bigint NOT NULL,
    created_us bigint NOT NULL,
    PRIMARY KEY (producer, epoch, write, queue)
);
CREATE INDEX queue_commits_by_time ON forebay.queue_commits (created_us);

INSERT INTO forebay.queue_commits (producer, epoch, write, queue, request, messages, duplicates, first_seq, created_us)
SELECT c.producer, c.epoch, '', coalesce(q.key, ''), '',
    coalesce((q.value ->> 1)::bigint - (q.value ->> 0)::bigint + 1, 0), (c.told ->> 2)::bigint,
    coalesce((q.value ->> 0)::bigint, 0), c.created_us
FROM (
    SELECT producer, epoch, created_us, convert_from(outcome, 'UTF8')::jsonb AS told FROM forebay.stage_commits
    WHERE outcome <> ''::bytea
) c
LEFT JOIN LATERAL jsonb_each(c.told -> 3) q ON true;
DROP TABLE forebay.stage_commits;
