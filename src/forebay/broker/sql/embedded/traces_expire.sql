-- Traces before a number.
DELETE FROM traces WHERE id < ?
