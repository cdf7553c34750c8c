-- Number and append messages to partitions whose numbers are remembered, in queues that are locked.
-- All or nothing: unless each partition is still of the queue with that name, and no queue has a size or a key, nothing is
-- written and no row comes back. An id that is there already makes the index refuse the whole.
-- A message says which partition it is for by its place among them, and how many came before it, in the push, in its
-- queue and in its partition.
WITH locked AS MATERIALIZED (
    SELECT queue_id, name, next_seq FROM forebay.queues
    WHERE name = ANY (%(grown_queues)b::text[]) AND coalesce((options ->> 'maxSize')::bigint, 0) = 0
        AND NOT coalesce((options ->> 'encryptionEnabled')::boolean, false)
), base AS MATERIALIZED (
    SELECT array_agg(q.queue_id ORDER BY place) AS queue_ids, array_agg(q.next_seq ORDER BY place) AS next_seqs,
        array_agg(p.last_position + 1 ORDER BY place) AS next_positions,
        coalesce(%(now_us)b::bigint, forebay.now_us()) AS now_us
    FROM unnest(%(partition_ids)b::bigint[], %(queues)b::text[]) WITH ORDINALITY AS given (partition_id, queue, place)
    JOIN forebay.partitions p ON p.partition_id = given.partition_id
    JOIN locked q ON q.queue_id = p.queue_id AND q.name = given.queue
    HAVING count(*) = cardinality(%(partition_ids)b::bigint[])
), added AS (
    INSERT INTO forebay.messages (queue_id, seq, partition_id, position, created_us, is_binary, is_minted,
        transaction_id, trace_id, headers, payload)
    SELECT queue_ids[place], next_seqs[place] + before_in_queue, (%(partition_ids)b::bigint[])[place],
        next_positions[place] + before_in_partition, now_us, is_binary, false, transaction_id, trace_id, headers,
        payload
    FROM (
        SELECT queue_ids, next_seqs, next_positions, now_us, unnest(%(places)b::bigint[]) AS place,
            unnest(%(before_in_queue)b::bigint[]) AS before_in_queue,
            unnest(%(before_in_partition)b::bigint[]) AS before_in_partition,
            unnest(%(are_binary)b::boolean[]) AS is_binary, unnest(%(transaction_ids)b::text[]) AS transaction_id,
            unnest(%(trace_ids)b::text[]) AS trace_id, unnest(%(headers)b::bytea[]) AS headers,
            unnest(%(payloads)b::bytea[]) AS payload
        FROM base
    ) AS given
), grown AS (
    UPDATE forebay.queues q
    SET next_seq = q.next_seq + given.added, newest_us = base.now_us, size_bytes = q.size_bytes + given.more_bytes
    FROM base, unnest(%(grown_queues)b::text[], %(grown)b::bigint[], %(more_bytes)b::bigint[])
        AS given (name, added, more_bytes)
    WHERE q.name = given.name
)
UPDATE forebay.partitions p
SET last_seq = base.next_seqs[given.place] + given.last_before, last_position = p.last_position + given.added,
    newest_us = greatest(p.newest_us, base.now_us)
FROM base, unnest(%(partition_ids)b::bigint[], %(last_before)b::bigint[], %(added)b::bigint[])
    WITH ORDINALITY AS given (partition_id, last_before, added, place)
WHERE p.partition_id = given.partition_id
RETURNING p.partition_id
