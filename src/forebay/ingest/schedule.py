"""When QoS 0 events are stored: at the earliest time that their pushes requested. Decisions only."""

from __future__ import annotations

import math


class FlushSchedule:
    """Times are of `time.monotonic`."""

    def __init__(self, flush_seconds: float, batch_events: int) -> None:
        self._flush_seconds = flush_seconds
        self._batch_events = batch_events
        self.flushed()

    def flushed(self) -> None:
        """What was noted so far is on its way."""
        self._due_at = math.inf
        self._events = 0
        self._events_max = math.inf

    def note(self, events: int, buffer_ms: int | None, buffer_max: int | None, now: float) -> bool:
        """A push came; whether it changes when the next flush is due."""
        before = self._due_at
        self._events += events
        self._events_max = min(self._events_max, self._batch_events if buffer_max is None else buffer_max)
        wanted = now + (self._flush_seconds if buffer_ms is None else buffer_ms / 1000)
        self._due_at = min(before, now if self._events >= self._events_max else wanted)
        return self._due_at < before

    def put_off(self, now: float) -> None:
        """A flush failed: what waits is due whenever the store is back."""
        self._due_at = min(self._due_at, now)

    def is_due(self, now: float) -> bool:
        return now >= self._due_at

    def seconds_until_due(self, now: float, seconds_max: float) -> float:
        return max(0.0, min(self._due_at - now, seconds_max))
