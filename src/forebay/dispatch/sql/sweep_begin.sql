-- How far a flow's source is cut, the last place in line that was given, and the group that the source names.
--pg SELECT COALESCE(CAST(d.definition AS json) -> 'source' ->> 'queue', ''), f.queue_id, f.next_seq,
--lite SELECT COALESCE(d.definition -> 'source' ->> 'queue', ''), f.queue_id, f.next_seq,
       COALESCE((SELECT n.value FROM forebay.dispatch_numbers AS n WHERE n.name = 'place'), 0),
--pg        COALESCE(CAST(d.definition AS json) -> 'source' ->> 'group', '')
--lite        COALESCE(d.definition -> 'source' ->> 'group', '')
FROM forebay.dispatch_flows AS f
JOIN forebay.dispatch_definitions AS d ON d.flow = f.flow AND d.version = f.version
WHERE f.flow = :flow
