-- Admin actions before a number, the newest first; of one key, or of all.
SELECT number, at_us, key_id, key_name, method, route, subject, address, status
FROM forebay.audit_log
WHERE number < :before AND (:key_id = '' OR key_id = :key_id)
ORDER BY number DESC
LIMIT :limit
