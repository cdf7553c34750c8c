-- Classes with parcels that wait cold, and those that are cold although none do any more.
SELECT action_class FROM forebay.action_queues WHERE cold > 0
UNION
SELECT action_class FROM forebay.action_classes WHERE is_cold = 1
ORDER BY action_class
