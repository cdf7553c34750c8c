-- Append messages, note the newest of each partition, and the seqs that were given out.
WITH added AS (
    INSERT INTO forebay.messages (queue_id, seq, partition_id, position, created_us, is_binary, is_minted,
        transaction_id, trace_id, headers, payload)
    SELECT queue_id, seq, partition_id, position, %(now_us)b::bigint, is_binary, is_minted, transaction_id, trace_id,
        headers, payload
    FROM unnest(%(queue_ids)b::bigint[], %(seqs)b::bigint[], %(partition_ids)b::bigint[], %(positions)b::bigint[],
        %(are_binary)b::boolean[], %(are_minted)b::boolean[], %(transaction_ids)b::text[], %(trace_ids)b::text[],
        %(headers)b::bytea[], %(payloads)b::bytea[])
        AS given (queue_id, seq, partition_id, position, is_binary, is_minted, transaction_id, trace_id, headers,
            payload)
), grown AS (
    UPDATE forebay.queues q
    SET next_seq = given.next_seq, newest_us = %(now_us)b::bigint, size_bytes = q.size_bytes + given.more_bytes
    FROM unnest(%(grown_ids)b::bigint[], %(next_seqs)b::bigint[], %(more_bytes)b::bigint[])
        AS given (queue_id, next_seq, more_bytes)
    WHERE q.queue_id = given.queue_id
)
UPDATE forebay.partitions p
SET last_seq = given.last_seq, last_position = given.last_position,
    newest_us = greatest(p.newest_us, %(now_us)b::bigint)
FROM unnest(%(changed_ids)b::bigint[], %(last_seqs)b::bigint[], %(last_positions)b::bigint[])
    AS given (partition_id, last_seq, last_position)
WHERE p.partition_id = given.partition_id
