-- How many wait for joins, each given as [flow, step, action, action_class, key].
SELECT s.flow, s.step, s.action, s.action_class, s.join_key, count(*)
FROM forebay.each(:groups) AS g
JOIN forebay.parcel_flows AS s
    ON s.state = 'JOINING' AND s.flow = g.value ->> 0 AND s.action = g.value ->> 2 AND s.join_key = g.value ->> 4
    AND s.step = CAST(g.value ->> 1 AS bigint) AND s.action_class = g.value ->> 3
GROUP BY s.flow, s.step, s.action, s.action_class, s.join_key
