-- Numbers of all queues.
SELECT id FROM queues
