-- What is committed of a write, by queue.
SELECT queue, rows, size_bytes, checksum, request, messages, duplicates, first_seq FROM forebay.queue_commits
WHERE producer = %(producer)b::text AND epoch = %(epoch)b::text AND write = %(write)b::text
