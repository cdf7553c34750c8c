-- End a key.
UPDATE forebay.api_keys SET revoked_us = :now_us WHERE key_id = :key_id AND revoked_us IS NULL
