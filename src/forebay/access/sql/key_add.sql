-- Keep a new key.
INSERT INTO forebay.api_keys (key_id, name, digest, scopes, queues, made_by, created_us, expires_us)
VALUES (:key_id, :name, :digest, :scopes, :queues, :made_by, :now_us, :expires_us)
