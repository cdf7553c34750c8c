-- Note an admin action.
INSERT INTO forebay.audit_log (at_us, key_id, key_name, method, route, subject, address, status)
VALUES (:at_us, :key_id, :key_name, :method, :route, :subject, :address, :status)
