-- Workers that have requested leases, the latest first.
SELECT worker, classes, plugin, seen_us FROM forebay.dispatch_workers ORDER BY seen_us DESC, worker
