-- Some rows of an owner that is gone. The key tells rows of an owner apart.
DELETE FROM {table} WHERE {owner} = :number AND {key} IN (SELECT {key} FROM {table} WHERE {owner} = :number LIMIT :limit)
