-- Another version. Its row is locked until the transaction ends: changes of keys follow each other.
INSERT INTO forebay.access_numbers (name, value) VALUES ('version', 1)
ON CONFLICT (name) DO UPDATE SET value = access_numbers.value + 1
