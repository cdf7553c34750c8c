-- Dead letters that match, and the sizes of their payloads. Conditions are put in, so that SQLite finds their index.
SELECT d.id, length(d.payload) FROM {dead_letters_all} WHERE {conditions} ORDER BY d.id {order} LIMIT ? OFFSET ?
