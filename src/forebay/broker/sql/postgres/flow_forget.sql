-- Forget a flow.
DELETE FROM forebay.flows WHERE name = %(name)b::text RETURNING name
