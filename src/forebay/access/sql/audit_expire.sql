-- Remove admin actions before a time, and the oldest beyond so many.
DELETE FROM forebay.audit_log
WHERE at_us < :before_us
    OR number <= coalesce((SELECT a.number FROM forebay.audit_log AS a ORDER BY a.number DESC LIMIT 1 OFFSET :kept), 0)
RETURNING number
