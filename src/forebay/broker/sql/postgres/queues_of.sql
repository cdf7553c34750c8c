-- The queues of partitions, given by their numbers, of leases and of stages, given by their ids.
SELECT q.name FROM forebay.partitions p JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
WHERE p.partition_id = ANY (%(partitions)b::bigint[])
UNION
SELECT q.name FROM forebay.deliveries d
JOIN forebay.partitions p ON p.partition_id = d.partition_id
JOIN forebay.queues q ON q.queue_id = p.queue_id AND q.name IS NOT NULL
WHERE d.lease_id = ANY (%(leases)b::text[]) AND d.lease_id <> ''
UNION
SELECT s.queue FROM forebay.stages s WHERE s.stage_id = ANY (%(stages)b::text[])
