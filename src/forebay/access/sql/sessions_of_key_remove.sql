-- End the sessions of keys, each given as [digest].
DELETE FROM forebay.key_sessions WHERE key_digest IN (SELECT k.value ->> 0 FROM forebay.each(:digests) AS k)
