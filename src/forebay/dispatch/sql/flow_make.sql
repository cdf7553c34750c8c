-- A flow that has no definition yet; nothing if there is one of the name.
INSERT INTO forebay.dispatch_flows (flow, version, state, updated_us)
VALUES (:flow, 0, 'RUNNING', :now_us)
ON CONFLICT (flow) DO NOTHING
RETURNING flow
