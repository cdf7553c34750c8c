-- The oldest parcels that wait warm, so many of each class and flow, which are given as [class, flow].
-- LATERAL, and the order of the tables, leave the planner nothing but one look at the index for each.
SELECT s.action_class, s.flow, s.place, s.did, s.step
FROM forebay.each(:keys) AS k
--pg CROSS JOIN LATERAL (SELECT w.action_class, w.flow, w.place, w.did, w.step
--pg                     FROM forebay.parcel_flows AS w
--pg                     WHERE w.action_class = k.value ->> 0 AND w.flow = k.value ->> 1 AND w.state = 'QUEUED'
--pg                     ORDER BY w.place, w.did, w.step
--pg                     LIMIT :parcels_each) AS s
--lite CROSS JOIN forebay.parcel_flows AS s
--lite WHERE s.action_class = k.value ->> 0 AND s.flow = k.value ->> 1 AND s.state = 'QUEUED'
--lite     AND s.place <= COALESCE((SELECT w.place
--lite                              FROM forebay.parcel_flows AS w
--lite                              WHERE w.action_class = k.value ->> 0 AND w.flow = k.value ->> 1 AND w.state = 'QUEUED'
--lite                              ORDER BY w.place
--lite                              LIMIT 1 OFFSET :parcels_each - 1), 9223372036854775807)
ORDER BY s.action_class, s.flow, s.place, s.did, s.step
