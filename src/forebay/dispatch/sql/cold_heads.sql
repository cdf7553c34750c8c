-- The oldest cold parcels of flows, given as [flow], in a class: as many of each as there is room for altogether.
-- The state is a parameter, so that only the index by flow, state and place fits, whatever else waits cold in the class.
SELECT s.place, s.did, s.step
FROM forebay.each(:flows) AS k
--pg CROSS JOIN LATERAL (SELECT c.place, c.did, c.step
--pg                     FROM forebay.parcel_flows AS c
--pg                     WHERE c.flow = k.value ->> 0 AND c.state = :state AND c.action_class = :action_class
--pg                     ORDER BY c.place
--pg                     LIMIT :parcels_max) AS s
--lite CROSS JOIN forebay.parcel_flows AS s
--lite WHERE s.flow = k.value ->> 0 AND s.state = :state AND s.action_class = :action_class
--lite     AND s.place <= COALESCE((SELECT c.place
--lite                              FROM forebay.parcel_flows AS c
--lite                              WHERE c.flow = k.value ->> 0 AND c.state = :state AND c.action_class = :action_class
--lite                              ORDER BY c.place
--lite                              LIMIT 1 OFFSET :parcels_max - 1), 9223372036854775807)
ORDER BY s.place, s.did, s.step
LIMIT :parcels_max
