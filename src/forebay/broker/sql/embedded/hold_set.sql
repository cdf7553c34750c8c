-- A reader that is no group needs what is there from a seq on, until a time.
INSERT OR REPLACE INTO holds VALUES (?, ?, ?, ?)
