-- A switch that all servers share.
SELECT is_set FROM forebay.flags WHERE name = %(name)b::text
