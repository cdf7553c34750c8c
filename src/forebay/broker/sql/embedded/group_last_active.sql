-- When a group popped last, as it is written down.
SELECT last_active_us FROM groups WHERE id = ?
