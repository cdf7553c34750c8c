-- Classes that went cold or warm, each given as [class, is_cold]; how often they did is counted.
UPDATE forebay.action_classes AS c
SET is_cold = CAST(k.value ->> 1 AS bigint),
    went_cold = c.went_cold + CAST(k.value ->> 1 AS bigint),
    went_warm = c.went_warm + 1 - CAST(k.value ->> 1 AS bigint)
FROM forebay.each(:modes) AS k
WHERE c.action_class = k.value ->> 0 AND c.is_cold <> CAST(k.value ->> 1 AS bigint)
