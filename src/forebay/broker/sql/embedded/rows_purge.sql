-- Some rows of an owner that is gone. The key tells rows of an owner apart.
DELETE FROM {table} WHERE {owner} = ?1 AND {key} IN (SELECT {key} FROM {table} WHERE {owner} = ?1 LIMIT ?2)
