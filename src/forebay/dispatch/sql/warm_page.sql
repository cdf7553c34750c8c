-- Parcels of a class that wait warm, page by page in the order of flow and place.
SELECT flow, place, did, step
FROM forebay.parcel_flows
WHERE action_class = :action_class AND state = 'QUEUED' AND (flow, place, did, step) > (:flow, :place, :did, :step)
ORDER BY flow, place, did, step
LIMIT :parcels_max
