-- The oldest trace.
SELECT min(id) FROM traces
