-- What a person, or a limit, wants of a flow.
UPDATE forebay.dispatch_flows
SET state = :state, reason = :reason, updated_us = :now_us
WHERE flow = :flow
RETURNING flow
