-- How far a source is cut, and up to where what was removed of it is no loss.
UPDATE forebay.dispatch_flows
SET queue_id = :queue_id, next_seq = :next_seq, waits_us = :waits_us, removed_seq = :removed_seq
WHERE flow = :flow
