-- Errors that went there later than now: the clock was set back. They are due as long from now as they were from then.
UPDATE forebay.parcel_flows
SET due_us = due_us - (failed_us - :now_us), failed_us = :now_us
WHERE due_us IS NOT NULL AND failed_us > :now_us
