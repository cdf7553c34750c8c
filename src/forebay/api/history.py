"""What this server did, minute by minute, for the last day: the curves of Queen's dashboard.

It is kept in memory and begins anew with the process. For more of it, or of all servers together, let Prometheus
read `/metrics`.
"""

from __future__ import annotations

import resource
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import NamedTuple

MINUTE_US = 60_000_000
MINUTES_MAX = 24 * 60
_PAGE_BYTES = resource.getpagesize()
_BUCKETS = ((60, 1), (360, 5), (1440, 15), (10_080, 60))
"""Up to so many requested minutes, so many minutes are one point; and a quarter of a day for more than that."""


@dataclass(slots=True)
class Figures:
    """Counted since the process began, or in some minutes."""

    pushed: int = 0
    popped: int = 0
    completed: int = 0
    failed: int = 0
    dead: int = 0
    removed: int = 0
    """By retention."""
    user_us: int = 0
    system_us: int = 0
    """Of processor time."""

    def added(self, other: Figures, sign: int = 1) -> Figures:
        names = [field.name for field in fields(Figures)]
        return Figures(*(getattr(self, name) + sign * getattr(other, name) for name in names))


@dataclass(slots=True)
class Minute:
    start_us: int
    figures: Figures
    samples: int = 0
    rss_bytes: int = 0
    """The most that was seen."""


class Span(NamedTuple):
    """The requested time, and how many minutes of it make one point."""

    from_us: int
    to_us: int

    @property
    def bucket_minutes(self) -> int:
        minutes = (self.to_us - self.from_us) / MINUTE_US
        return next((width for limit, width in _BUCKETS if minutes <= limit), 360)


class History:
    def __init__(self) -> None:
        self._minutes: deque[Minute] = deque(maxlen=MINUTES_MAX)
        self._last = Figures()

    def note(self, now_us: int, total: Figures) -> None:
        """Add what was done since the last note to the minute of now."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        total.user_us, total.system_us = int(usage.ru_utime * 1e6), int(usage.ru_stime * 1e6)
        start_us = now_us - now_us % MINUTE_US
        if not self._minutes or start_us > self._minutes[-1].start_us:
            self._minutes.append(Minute(start_us, Figures()))
        # After a clock was set back, time stands still here until it is where it was.
        minute = self._minutes[-1]
        minute.figures = minute.figures.added(total.added(self._last, -1))
        minute.samples += 1
        minute.rss_bytes = max(minute.rss_bytes, _resident_bytes())
        self._last = total

    def points(self, span: Span) -> list[Minute]:
        """What lies in the span, oldest first, as many minutes in one as the span says."""
        width_us = span.bucket_minutes * MINUTE_US
        found: dict[int, Minute] = {}
        for minute in self._within(span):
            start_us = minute.start_us - minute.start_us % width_us
            point = found.setdefault(start_us, Minute(start_us, Figures()))
            point.figures = point.figures.added(minute.figures)
            point.samples += minute.samples
            point.rss_bytes = max(point.rss_bytes, minute.rss_bytes)
        return list(found.values())

    def _within(self, span: Span) -> Iterable[Minute]:
        return (each for each in self._minutes if span.from_us - MINUTE_US < each.start_us <= span.to_us)


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
