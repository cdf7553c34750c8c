-- This server waits for nothing any more; and servers that are gone wait for nothing either.
DELETE FROM forebay.waits WHERE server_id = %(server_id)b::text OR until_us < forebay.now_us() - 600000000
