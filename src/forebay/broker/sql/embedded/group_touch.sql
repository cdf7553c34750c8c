-- When a group popped last.
UPDATE groups SET last_active_us = :active_us WHERE id = :group_id AND last_active_us < :active_us
