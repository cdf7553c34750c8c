-- How many stages there are, and the bytes of their payloads.
SELECT count(*), coalesce(sum(size_bytes), 0)::bigint FROM forebay.stages
