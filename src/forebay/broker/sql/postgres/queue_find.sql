-- A queue by its name.
SELECT name, namespace, task, options, created_us, queue_id FROM forebay.queues WHERE name = %(name)b::text
