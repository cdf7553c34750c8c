-- Make the queue, or give it these options in place of all it had.
INSERT INTO forebay.queues AS q (name, namespace, task, options, priority, created_us)
VALUES (%(name)b::text, %(made_namespace)b::text, %(made_task)b::text, %(options)b::jsonb, %(priority)b::bigint,
    coalesce(%(now_us)b::bigint, forebay.now_us()))
ON CONFLICT (name) DO UPDATE SET options = excluded.options, priority = excluded.priority,
    namespace = coalesce(nullif(%(namespace)b::text, ''), q.namespace),
    task = coalesce(nullif(%(task)b::text, ''), q.task)
RETURNING q.name, q.namespace, q.task, q.options, q.created_us
