-- All keys, the oldest first; or one.
SELECT key_id, name, digest, previous_digest, previous_until_us, scopes, queues, made_by, created_us, expires_us,
       revoked_us, used_us
FROM forebay.api_keys
WHERE :key_id = '' OR key_id = :key_id
ORDER BY created_us, key_id
