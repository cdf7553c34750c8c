-- A flow with a timed source, and when it is due; kept from other servers until the transaction ends.
SELECT d.definition, f.version, f.tick_us
FROM forebay.dispatch_flows AS f
JOIN forebay.dispatch_definitions AS d ON d.flow = f.flow AND d.version = f.version
WHERE f.flow = :flow AND f.state <> 'STOPPED'
--pg FOR UPDATE OF f SKIP LOCKED
