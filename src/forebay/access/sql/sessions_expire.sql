-- Remove sessions that have ended, and the oldest beyond so many.
DELETE FROM forebay.key_sessions
WHERE expires_us <= :now_us OR session_digest IN (
    SELECT s.session_digest FROM forebay.key_sessions AS s ORDER BY s.created_us DESC, s.session_digest
    LIMIT 1000 OFFSET :kept
)
