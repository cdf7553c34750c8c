-- Where a flow's source is cut from: a new flow, or one with another source; what was removed before is not its loss.
UPDATE forebay.dispatch_flows
SET queue_id = :queue_id, next_seq = :next_seq, waits_us = NULL, tick_us = NULL, removed_seq = :removed_seq
WHERE flow = :flow
