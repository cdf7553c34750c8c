-- Flows with steps in ERROR: how many, and what the one with the last place in line says.
SELECT f.flow, (SELECT count(*) FROM forebay.parcel_flows AS s WHERE s.flow = f.flow AND s.state = 'ERROR'),
       (SELECT s.error FROM forebay.parcel_flows AS s WHERE s.flow = f.flow AND s.state = 'ERROR'
        ORDER BY s.place DESC LIMIT 1)
FROM forebay.dispatch_flows AS f
WHERE EXISTS (SELECT 1 FROM forebay.parcel_flows AS s WHERE s.flow = f.flow AND s.state = 'ERROR')
