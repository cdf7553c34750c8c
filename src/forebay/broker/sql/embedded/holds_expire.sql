-- Forget readers whose time is over.
DELETE FROM holds WHERE until_us <= ?
