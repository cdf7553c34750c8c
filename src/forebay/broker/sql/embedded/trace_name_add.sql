-- A trace has a name.
INSERT INTO trace_names (name, trace_id) VALUES (?, ?)
