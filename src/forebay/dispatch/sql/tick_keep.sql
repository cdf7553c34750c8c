-- When a timed source is due.
UPDATE forebay.dispatch_flows SET tick_us = :tick_us WHERE flow = :flow
