-- What waits warm, by class, flow and action: how many, and the first in line. SQLite would take another index, and read
-- all that the flow has queued in every class.
SELECT q.action_class, q.flow, q.flow_type, q.action, q.queued,
       (SELECT s.queued_us
        FROM forebay.parcel_flows AS s
--lite         INDEXED BY parcel_flows_queued
        WHERE s.state = 'QUEUED' AND s.action_class = q.action_class AND s.flow = q.flow AND s.action = q.action
        ORDER BY s.place, s.did, s.step
        LIMIT 1),
       COALESCE((SELECT s.did
                 FROM forebay.parcel_flows AS s
--lite                  INDEXED BY parcel_flows_queued
                 WHERE s.state = 'QUEUED' AND s.action_class = q.action_class AND s.flow = q.flow
                     AND s.action = q.action
                 ORDER BY s.place, s.did, s.step
                 LIMIT 1), '')
FROM forebay.action_queues AS q
WHERE q.queued > 0
ORDER BY q.action_class, q.flow, q.action
