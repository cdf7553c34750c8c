-- Dead letters with their partitions; those of a deleted queue are left out.
dead_letters d JOIN partitions p ON p.id = d.partition_id JOIN queues q ON q.id = p.queue_id
