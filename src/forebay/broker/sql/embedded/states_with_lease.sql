-- States of a group that have a lease, over or not.
SELECT state FROM states WHERE group_id = :group_id AND lease_id <> ''
