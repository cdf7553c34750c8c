-- How many names there are.
SELECT count(DISTINCT name) FROM trace_names
