-- A queue has no records of a transaction any more.
DELETE FROM tagged_records WHERE tag = ? AND queue_id = ?
