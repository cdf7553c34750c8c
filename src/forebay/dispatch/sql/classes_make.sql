-- Classes that were not known yet, each given as [class].
INSERT INTO forebay.action_classes (action_class)
SELECT k.value ->> 0
FROM forebay.each(:classes) AS k
WHERE true
ORDER BY 1
ON CONFLICT (action_class) DO NOTHING
