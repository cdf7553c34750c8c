-- The steps that a parcel has come to.
SELECT step, flow_type, action, action_class, state, attempts, lease_id, ranges, messages, size, queued_us, due_us, error,
       join_key
FROM forebay.parcel_flows
WHERE did = :did
ORDER BY step
