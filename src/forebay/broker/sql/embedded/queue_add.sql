-- A queue is made.
INSERT INTO queues (id, name, namespace, task, options, created_us) VALUES (?, ?, ?, ?, ?, ?)
