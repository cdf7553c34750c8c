-- Append messages, note the newest of each partition, and the seqs that were given out.
-- Every id is indexed: a message may be pushed again, with the id it had, by a client that did not hear of its commit.
-- (Rows of older servers that say is_minted are not.)
-- The columns are unfolded in the list of results, side by side: in FROM they would be copied into a table first.
WITH added AS (
    INSERT INTO forebay.messages (queue_id, seq, partition_id, position, created_us, is_binary, is_minted,
        transaction_id, trace_id, headers, payload)
    SELECT unnest(%(queue_ids)b::bigint[]), unnest(%(seqs)b::bigint[]), unnest(%(partition_ids)b::bigint[]),
        unnest(%(positions)b::bigint[]), %(now_us)b::bigint, unnest(%(are_binary)b::boolean[]),
        false, unnest(%(transaction_ids)b::text[]), unnest(%(trace_ids)b::text[]),
        unnest(%(headers)b::bytea[]), unnest(%(payloads)b::bytea[])
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
