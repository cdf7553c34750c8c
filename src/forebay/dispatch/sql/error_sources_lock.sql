-- Flows with an on-error source; kept from changing until the transaction ends.
SELECT d.definition, f.version
FROM forebay.dispatch_flows AS f
JOIN forebay.dispatch_definitions AS d ON d.flow = f.flow AND d.version = f.version
WHERE f.state <> 'STOPPED'
--pg     AND CAST(d.definition AS json) -> 'source' ->> 'kind' = 'errors'
--lite     AND d.definition -> 'source' ->> 'kind' = 'errors'
ORDER BY f.flow
--pg FOR UPDATE OF f
