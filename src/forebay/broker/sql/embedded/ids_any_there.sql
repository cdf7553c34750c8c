-- Whether any of these ids is there; given as [partition, id].
SELECT 1
FROM json_each(?) j
CROSS JOIN transaction_ids t ON t.partition_id = json_extract(j.value, '$[0]') AND t.transaction_id =
    json_extract(j.value, '$[1]')
LIMIT 1
