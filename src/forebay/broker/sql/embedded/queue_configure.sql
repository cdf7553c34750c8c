-- Options, namespace and task of a queue.
UPDATE queues SET options = ?, namespace = ?, task = ? WHERE id = ?
