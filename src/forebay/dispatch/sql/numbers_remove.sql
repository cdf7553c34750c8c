-- Numbers of what is forgotten, each given as [name].
DELETE FROM forebay.dispatch_numbers WHERE name IN (SELECT k.value ->> 0 FROM forebay.each(:names) AS k)
