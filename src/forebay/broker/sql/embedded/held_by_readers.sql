-- Up to where no reader that is no group needs a queue's messages.
SELECT min(seq) - 1 FROM holds WHERE queue_id = ? AND until_us > ?
