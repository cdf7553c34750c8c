-- Remove keys that were revoked before a time.
DELETE FROM forebay.api_keys WHERE revoked_us < :before_us RETURNING key_id
