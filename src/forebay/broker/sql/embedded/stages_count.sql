-- How many stages there are, and their bytes.
SELECT count(*), coalesce(sum(size), 0) FROM stages
