-- A run of a queue's messages as columns: numbers side by side, big-endian; texts one behind the other, and their lengths.
-- It ends with the message that passes the limit of bytes, or of rows.
WITH page AS (
    SELECT m.seq, m.created_us, m.transaction_id, m.trace_id, m.headers, m.payload, p.name,
        sum(octet_length(m.payload)) OVER (ORDER BY m.seq ROWS UNBOUNDED PRECEDING) - octet_length(m.payload) AS before
    FROM forebay.messages m JOIN forebay.partitions p ON p.partition_id = m.partition_id
    WHERE m.queue_id = %(queue_id)b::bigint
        AND m.seq BETWEEN %(from_seq)b::bigint AND %(to_seq)b::bigint
        AND (%(partitions)b::text[] IS NULL OR p.name = ANY (%(partitions)b::text[]))
        AND m.created_us >= %(created_from_us)b::bigint AND m.created_us < %(created_to_us)b::bigint
    ORDER BY m.seq LIMIT %(rows_max)b::bigint
), chosen AS (
    SELECT seq, created_us, convert_to(name, 'UTF8') AS name, convert_to(transaction_id, 'UTF8') AS transaction_id,
        convert_to(trace_id, 'UTF8') AS trace_id, headers, payload
    FROM page WHERE before < %(bytes_max)b::bigint ORDER BY seq
)
SELECT count(*), max(seq), (SELECT removed FROM forebay.queues WHERE queue_id = %(queue_id)b::bigint),
    string_agg(int8send(seq), ''::bytea), string_agg(int8send(created_us), ''::bytea),
    string_agg(int4send(octet_length(name)), ''::bytea), string_agg(name, ''::bytea),
    string_agg(int4send(octet_length(transaction_id)), ''::bytea), string_agg(transaction_id, ''::bytea),
    string_agg(int4send(octet_length(trace_id)), ''::bytea), string_agg(trace_id, ''::bytea),
    string_agg(int4send(octet_length(headers)), ''::bytea), string_agg(headers, ''::bytea),
    string_agg(int4send(octet_length(payload)), ''::bytea), string_agg(payload, ''::bytea)
FROM chosen
