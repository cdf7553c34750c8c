-- Definitions by flow and version, each given as [flow, version].
SELECT d.flow, d.version, d.definition
FROM forebay.each(:keys) AS k
JOIN forebay.dispatch_definitions AS d ON d.flow = k.value ->> 0 AND d.version = CAST(k.value ->> 1 AS bigint)
