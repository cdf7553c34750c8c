-- Set a switch that all servers share.
INSERT INTO forebay.flags (name, is_set) VALUES (%(name)b::text, %(is_set)b::boolean)
ON CONFLICT (name) DO UPDATE SET is_set = excluded.is_set
