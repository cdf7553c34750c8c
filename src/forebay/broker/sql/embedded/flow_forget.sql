-- Forget a flow.
DELETE FROM flows WHERE name = :name
