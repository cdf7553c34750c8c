-- Keep others from moving parcels of these classes until the transaction ends. In the order of names, so that two
-- transactions never wait for each other. Each is given as [class].
SELECT action_class, is_cold
FROM forebay.action_classes
WHERE action_class IN (SELECT k.value ->> 0 FROM forebay.each(:classes) AS k)
ORDER BY action_class
--pg FOR UPDATE
