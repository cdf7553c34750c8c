-- Number and append messages to partitions whose numbers are remembered, in one statement.
-- A transaction that changes a queue's row has it until its commit, so commit order is seq order. What an UPDATE
-- returns is what it found last, also when it had to wait: seqs and positions are taken from there, and from no earlier
-- look.
-- All or nothing: unless each partition is still of the queue with that name, and no queue has a size or a key, it fails.
-- An id that is there already makes the index refuse the whole.
-- A message says which partition it is for by its place among them, and how many came before it, in the push, in its
-- queue and in its partition.
WITH grown AS (
    UPDATE forebay.queues q
    SET next_seq = q.next_seq + given.added, newest_us = coalesce(%(now_us)b::bigint, forebay.now_us()),
        size_bytes = q.size_bytes + given.more_bytes
    FROM unnest(%(grown_queues)b::text[], %(grown)b::bigint[], %(more_bytes)b::bigint[])
        AS given (name, added, more_bytes)
    WHERE q.name = given.name AND coalesce((q.options ->> 'maxSize')::bigint, 0) = 0
        AND NOT coalesce((q.options ->> 'encryptionEnabled')::boolean, false)
    RETURNING q.queue_id, q.name, q.next_seq - given.added AS first_seq, q.newest_us AS now_us
), moved AS (
    UPDATE forebay.partitions p
    SET last_seq = grown.first_seq + given.last_before, last_position = p.last_position + given.added,
        newest_us = greatest(p.newest_us, grown.now_us)
    FROM grown, unnest(%(partition_ids)b::bigint[], %(queues)b::text[], %(last_before)b::bigint[], %(added)b::bigint[])
        WITH ORDINALITY AS given (partition_id, queue, last_before, added, place)
    -- "+ 0": partitions are to be found by their own number, not by their queue's, which may have thousands.
    WHERE p.partition_id = given.partition_id AND p.queue_id + 0 = grown.queue_id AND grown.name = given.queue
    RETURNING given.place, grown.queue_id, grown.first_seq, p.last_position - given.added + 1 AS next_position,
        grown.now_us
), base AS MATERIALIZED (
    SELECT array_agg(queue_id ORDER BY place) AS queue_ids, array_agg(first_seq ORDER BY place) AS first_seqs,
        array_agg(next_position ORDER BY place) AS next_positions,
        CASE WHEN count(*) = cardinality(%(partition_ids)b::bigint[]) THEN max(now_us)
            ELSE ('a queue of a push was deleted or limited, partitions left: ' || count(*))::bigint END AS now_us
    FROM moved
), added AS (
    INSERT INTO forebay.messages (queue_id, seq, partition_id, position, created_us, is_binary, is_minted,
        transaction_id, trace_id, headers, payload)
    SELECT queue_ids[place], first_seqs[place] + before_in_queue, (%(partition_ids)b::bigint[])[place],
        next_positions[place] + before_in_partition, now_us, is_binary, false, transaction_id, trace_id, headers,
        payload
    FROM (
        SELECT queue_ids, first_seqs, next_positions, now_us, unnest(%(places)b::bigint[]) AS place,
            unnest(%(before_in_queue)b::bigint[]) AS before_in_queue,
            unnest(%(before_in_partition)b::bigint[]) AS before_in_partition,
            unnest(%(are_binary)b::boolean[]) AS is_binary, unnest(%(transaction_ids)b::text[]) AS transaction_id,
            unnest(%(trace_ids)b::text[]) AS trace_id, unnest(%(headers)b::bytea[]) AS headers,
            unnest(%(payloads)b::bytea[]) AS payload
        FROM base
    ) AS given
)
SELECT grown.queue_id, grown.name, grown.first_seq,
    EXISTS (
        SELECT FROM forebay.waits w
        WHERE w.queue IN (grown.name, '') AND w.server_id <> %(server_id)b::text AND w.until_us > forebay.now_us()
    )
FROM grown
