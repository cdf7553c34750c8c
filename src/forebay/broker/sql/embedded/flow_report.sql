-- Keep what a worker says of a flow, unless another worker has it and was heard a short while ago.
INSERT INTO flows (name, worker, report, updated_us)
VALUES (:name, CASE WHEN :is_released THEN '' ELSE :worker END, :report, :now_us)
ON CONFLICT (name) DO UPDATE SET
    worker = excluded.worker,
    report = excluded.report,
    updated_us = excluded.updated_us
WHERE flows.worker IN ('', :worker) OR flows.updated_us < excluded.updated_us - :quiet_us
