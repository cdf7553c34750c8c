-- Notify other servers of pushes, on a connection of its own.
SELECT pg_notify(%(channel)b::text, payload) FROM unnest(%(payloads)b::text[]) AS payload
