-- A partition has one message less.
UPDATE partitions SET removed = removed + 1, size = size - ? WHERE id = ?
