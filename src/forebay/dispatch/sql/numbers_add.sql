-- Numbers that only grow, each given as [name, by how much].
INSERT INTO forebay.dispatch_numbers AS n (name, value)
SELECT k.value ->> 0, CAST(k.value ->> 1 AS bigint)
FROM forebay.each(:numbers) AS k
WHERE true
ORDER BY 1
ON CONFLICT (name) DO UPDATE SET value = n.value + excluded.value
