-- In how many partitions a group stands.
SELECT count(*) FROM states WHERE group_id = ?
