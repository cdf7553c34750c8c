-- The next group and partition that steps wait for, behind one of them: one look at the index, however many wait.
SELECT queue, queue_id, group_name, partition
FROM forebay.parcel_awaits
WHERE (queue, queue_id, group_name, partition) > (:queue, :queue_id, :group, :partition)
ORDER BY queue, queue_id, group_name, partition
LIMIT 1
