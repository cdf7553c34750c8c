-- This server waits for messages of a queue; the others are to tell it when they push there.
INSERT INTO forebay.waits (queue, server_id, until_us)
VALUES (%(queue)b::text, %(server_id)b::text, forebay.now_us() + %(seconds)b::bigint * 1000000)
ON CONFLICT (queue, server_id) DO UPDATE SET until_us = excluded.until_us
