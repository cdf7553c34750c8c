-- Numbers that only grow, of dispatch as a whole, each given as [name].
SELECT name, value FROM forebay.dispatch_numbers WHERE name IN (SELECT k.value ->> 0 FROM forebay.each(:names) AS k)
