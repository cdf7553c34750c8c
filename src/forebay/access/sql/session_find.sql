-- A session that has not ended.
SELECT key_digest, expires_us FROM forebay.key_sessions WHERE session_digest = :session AND expires_us > :now_us
