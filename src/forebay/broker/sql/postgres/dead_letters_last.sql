-- The newest dead letter; none has an id of 0.
SELECT coalesce(max(letter_id), 0) FROM forebay.dead_letters
