-- The first in line of joins, each given as [flow, step, action, action_class, key, how many].
SELECT m.flow, m.step, m.action, m.action_class, m.join_key, m.did, m.place, m.flow_type, m.ranges, m.messages, m.size,
       p.version, p.annotations
FROM (SELECT s.flow, s.step, s.action, s.action_class, s.join_key, s.did, s.place, s.flow_type, s.ranges, s.messages,
             s.size, CAST(g.value ->> 5 AS bigint) AS members_max,
             row_number() OVER (PARTITION BY s.flow, s.step, s.action, s.action_class, s.join_key
                                ORDER BY s.place, s.did) AS number
      FROM forebay.each(:groups) AS g
      JOIN forebay.parcel_flows AS s
          ON s.state = 'JOINING' AND s.flow = g.value ->> 0 AND s.action = g.value ->> 2
          AND s.join_key = g.value ->> 4 AND s.step = CAST(g.value ->> 1 AS bigint)
          AND s.action_class = g.value ->> 3) AS m
JOIN forebay.parcels AS p ON p.did = m.did
WHERE m.number <= m.members_max
ORDER BY m.flow, m.step, m.action, m.action_class, m.join_key, m.place, m.did
