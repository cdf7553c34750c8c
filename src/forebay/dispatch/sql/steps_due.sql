-- Errors whose time to be queued again has come, the longest due first.
-- COALESCE leaves the planner no index on states, only the one on times.
SELECT did, step
FROM forebay.parcel_flows
WHERE due_us <= :now_us AND COALESCE(state, '') = 'ERROR'
ORDER BY due_us
LIMIT :steps_max
