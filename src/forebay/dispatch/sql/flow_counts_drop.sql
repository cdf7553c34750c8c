-- Counts of a forgotten flow, where they are zero.
DELETE FROM forebay.action_queues WHERE flow = :flow AND queued = 0 AND cold = 0 AND leased = 0
