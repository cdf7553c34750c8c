-- All queues.
SELECT id, name, namespace, task, options, created_us FROM queues ORDER BY id
