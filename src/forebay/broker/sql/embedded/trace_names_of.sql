-- Names of a trace.
SELECT name FROM trace_names WHERE trace_id = ? ORDER BY name
