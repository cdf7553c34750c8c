-- Remove all keys.
DELETE FROM forebay.api_keys RETURNING key_id
