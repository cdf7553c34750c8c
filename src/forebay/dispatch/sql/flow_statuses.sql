-- One flow, or all with the empty name: what is wanted of it, how far it is cut, what waits, runs and failed.
SELECT f.flow, f.version, d.definition, f.state, f.reason, f.updated_us, f.queue_id, f.next_seq, f.waits_us, f.tick_us,
       COALESCE(q.queued, 0), COALESCE(q.cold, 0), COALESCE(q.leased, 0),
       (SELECT count(*) FROM forebay.parcel_flows AS s WHERE s.flow = f.flow AND s.state = 'JOINING'),
       (SELECT count(*) FROM forebay.parcels AS p WHERE p.flow = f.flow AND p.state = 'ERROR'),
       (SELECT count(*) FROM forebay.parcel_flows AS s WHERE s.flow = f.flow AND s.state = 'EXPORTING'),
       COALESCE((SELECT n.value FROM forebay.dispatch_numbers AS n WHERE n.name = 'flow_lost ' || f.flow), 0)
FROM forebay.dispatch_flows AS f
JOIN forebay.dispatch_definitions AS d ON d.flow = f.flow AND d.version = f.version
LEFT JOIN (SELECT flow, CAST(sum(queued) AS bigint) AS queued, CAST(sum(cold) AS bigint) AS cold,
                  CAST(sum(leased) AS bigint) AS leased
           FROM forebay.action_queues
           GROUP BY flow) AS q ON q.flow = f.flow
WHERE :flow = '' OR f.flow = :flow
ORDER BY f.flow
