-- The newest version of these flows, each given as [flow].
SELECT f.flow, f.version
FROM forebay.dispatch_flows AS f
WHERE f.flow IN (SELECT k.value ->> 0 FROM forebay.each(:flows) AS k)
