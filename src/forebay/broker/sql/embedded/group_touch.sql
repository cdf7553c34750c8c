-- When a group popped last.
UPDATE groups SET last_active_us = ?1 WHERE id = ?2 AND last_active_us < ?1
