-- A worker asks for parcels of these classes.
INSERT INTO forebay.dispatch_workers (worker, classes, plugin, seen_us)
VALUES (:worker, :classes, :plugin, :now_us)
ON CONFLICT (worker) DO UPDATE SET classes = excluded.classes, plugin = excluded.plugin, seen_us = excluded.seen_us
