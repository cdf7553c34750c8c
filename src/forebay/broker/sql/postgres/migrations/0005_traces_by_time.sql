-- Traces are kept for a time: the oldest are found without reading the others. Not by their numbers: each server gives
-- an event the time of its own clock, and one young event at the front must not keep all those behind it.

CREATE INDEX traces_by_time ON forebay.traces (created_us);
