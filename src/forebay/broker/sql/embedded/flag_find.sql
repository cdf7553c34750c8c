-- Whether a switch is on.
SELECT is_set FROM flags WHERE name = ?
