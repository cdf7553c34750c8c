-- Make the queues that do not exist. Apart from the push's own transaction, so that no lock is held meanwhile.
INSERT INTO forebay.queues (name, namespace, task, options, priority, created_us)
SELECT name, namespace, task, (%(options)b::text)::jsonb, (%(priority)b::bigint)::integer,
    coalesce(%(now_us)b::bigint, forebay.now_us())
FROM unnest(%(names)b::text[], %(namespaces)b::text[], %(tasks)b::text[]) AS given (name, namespace, task)
ORDER BY name
ON CONFLICT (name) DO NOTHING
