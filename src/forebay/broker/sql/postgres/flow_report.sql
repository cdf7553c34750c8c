-- Keep what a worker says of a flow, unless another worker has it and was heard a short while ago.
INSERT INTO forebay.flows (name, worker, report, updated_us)
VALUES (
    %(name)b::text, CASE WHEN %(is_released)b::boolean THEN '' ELSE %(worker)b::text END, %(report)b::bytea,
    coalesce(%(now_us)b::bigint, forebay.now_us())
)
ON CONFLICT (name) DO UPDATE SET
    worker = excluded.worker,
    report = excluded.report,
    updated_us = excluded.updated_us
WHERE flows.worker IN ('', %(worker)b::text) OR flows.updated_us < excluded.updated_us - %(quiet_us)b::bigint
