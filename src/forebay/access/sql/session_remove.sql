-- End a session.
DELETE FROM forebay.key_sessions WHERE session_digest = :session RETURNING session_digest
