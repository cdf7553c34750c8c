-- A flow whose source may be cut, and how far it is; kept from other servers until the transaction ends.
SELECT d.definition, f.version, f.queue_id, f.next_seq, f.waits_us, f.removed_seq
FROM forebay.dispatch_flows AS f
JOIN forebay.dispatch_definitions AS d ON d.flow = f.flow AND d.version = f.version
WHERE f.flow = :flow AND f.state <> 'STOPPED'
--pg FOR UPDATE OF f SKIP LOCKED
