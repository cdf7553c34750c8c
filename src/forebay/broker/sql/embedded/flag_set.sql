-- A switch.
INSERT OR REPLACE INTO flags (name, is_set) VALUES (?, ?)
