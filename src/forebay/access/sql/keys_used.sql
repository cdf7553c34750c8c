-- Note that keys, each given as [id], were used.
UPDATE forebay.api_keys SET used_us = :now_us
WHERE key_id IN (SELECT k.value ->> 0 FROM forebay.each(:ids) AS k)
