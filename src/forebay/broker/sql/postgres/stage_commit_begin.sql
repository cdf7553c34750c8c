-- Claim a write for these queues. The transaction that comes second waits for the first, and then gets no row.
INSERT INTO forebay.queue_commits (producer, epoch, write, queue, rows, size_bytes, checksum, request, messages,
    duplicates, first_seq, created_us)
SELECT %(producer)b::text, %(epoch)b::text, %(write)b::text, given.queue, given.rows, given.size_bytes, given.checksum,
    %(request)b::text, 0, 0, 0, coalesce(%(now_us)b::bigint, forebay.now_us())
FROM unnest(%(queues)b::text[], %(rows)b::bigint[], %(sizes)b::bigint[], %(checksums)b::bigint[])
    AS given (queue, rows, size_bytes, checksum)
ORDER BY given.queue
ON CONFLICT (producer, epoch, write, queue) DO NOTHING
RETURNING queue, created_us
