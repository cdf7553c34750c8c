-- Names of traces that are removed.
DELETE FROM trace_names WHERE trace_id < ?
