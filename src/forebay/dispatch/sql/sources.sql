-- Flows whose sources are not stopped, and how far they are.
SELECT f.flow, d.definition, f.queue_id, f.next_seq, f.waits_us, f.tick_us
FROM forebay.dispatch_flows AS f
JOIN forebay.dispatch_definitions AS d ON d.flow = f.flow AND d.version = f.version
WHERE f.state <> 'STOPPED'
ORDER BY f.flow
