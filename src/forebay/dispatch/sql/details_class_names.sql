-- Action classes that parcels have come to.
SELECT action_class FROM forebay.action_classes ORDER BY action_class
