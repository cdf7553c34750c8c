-- Give a key another digest. The one that it had counts until a time.
UPDATE forebay.api_keys
SET previous_digest = digest, previous_until_us = :until_us, digest = :digest
WHERE key_id = :key_id AND revoked_us IS NULL
RETURNING key_id
