-- How many traces have a name.
SELECT count(*) FROM trace_names WHERE name = ?
