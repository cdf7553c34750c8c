-- All that wait for joins: how many, since when, and a version whose definition has the join.
SELECT g.flow, g.step, g.action, g.action_class, g.join_key, g.members, g.since_us, g.last_us, p.version
FROM (SELECT flow, step, action, action_class, join_key, count(*) AS members, min(queued_us) AS since_us,
             max(queued_us) AS last_us, min(did) AS did
      FROM forebay.parcel_flows
      WHERE state = 'JOINING'
      GROUP BY flow, step, action, action_class, join_key) AS g
JOIN forebay.parcels AS p ON p.did = g.did
ORDER BY g.since_us
