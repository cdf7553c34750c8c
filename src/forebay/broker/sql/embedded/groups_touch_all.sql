-- A group may not seem idle for what an older Forebay did not write down.
UPDATE groups SET last_active_us = max(last_active_us, ?)
