-- So many more places in line; the last of them. Others wait until the transaction ends.
INSERT INTO forebay.dispatch_numbers AS n (name, value)
VALUES ('place', :count)
ON CONFLICT (name) DO UPDATE SET value = n.value + excluded.value
RETURNING value
