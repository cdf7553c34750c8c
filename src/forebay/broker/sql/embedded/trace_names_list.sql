-- Names of traces, and how many have each.
SELECT name, count(*) FROM trace_names GROUP BY name ORDER BY name LIMIT ? OFFSET ?
