-- Keep a session.
INSERT INTO forebay.key_sessions (session_digest, key_digest, created_us, expires_us)
VALUES (:session, :key, :now_us, :expires_us)
