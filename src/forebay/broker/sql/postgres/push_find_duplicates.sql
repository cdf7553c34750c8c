-- Which of the producers' own ids the partitions hold already: one look into the index per id.
SELECT given.place, m.seq
FROM unnest(%(partition_ids)b::bigint[], %(transaction_ids)b::text[]) WITH ORDINALITY
    AS given (partition_id, transaction_id, place)
CROSS JOIN LATERAL (
    SELECT seq FROM forebay.messages
    WHERE partition_id = given.partition_id AND transaction_id = given.transaction_id AND NOT is_minted
    LIMIT 1
) m
