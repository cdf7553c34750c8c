-- End all sessions.
DELETE FROM forebay.key_sessions
