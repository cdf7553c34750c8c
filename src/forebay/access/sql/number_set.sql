-- Set one of them.
INSERT INTO forebay.access_numbers (name, value) VALUES (:name, :value)
ON CONFLICT (name) DO UPDATE SET value = excluded.value
