"""How long things take: a count of durations by bucket, cheap enough to be kept for every request.

A duration belongs to the first bucket whose bound it does not exceed; what is longer than all bounds is counted behind
the last one. Bounds are fixed, so that distributions of several times and servers can be added up and taken from each
other, and a quantile is right to within a bucket.
"""

from __future__ import annotations

from bisect import bisect_right
from threading import Lock
from typing import NamedTuple

SHORT = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds, for what a request or a disk takes."""
LONG = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14_400.0, 86_400.0)
"""Seconds, for what waits or is worked on."""

FOLD_AT = 256
"""Durations that are counted together."""


class Distribution(NamedTuple):
    """A histogram as of one moment."""

    bounds: tuple[float, ...]
    """Seconds."""
    counts: tuple[int, ...]
    """One more than bounds: the last one is of what is longer. Not cumulative."""
    sum_seconds: float

    @property
    def count(self) -> int:  # type: ignore[override]  # a tuple's own count is not used
        return sum(self.counts)

    def since(self, earlier: Distribution) -> Distribution:
        """What came after an earlier moment."""
        counts = tuple(now - then for now, then in zip(self.counts, earlier.counts, strict=True))
        return Distribution(self.bounds, counts, self.sum_seconds - earlier.sum_seconds)

    def quantile(self, share: float) -> float | None:
        """The duration that so much of all (0 to 1) does not exceed, as if each bucket were evenly filled; None if
        nothing was counted. What is longer than all bounds counts as the last one."""
        rank, before = share * self.count, 0
        if not self.count:
            return None
        for place, found in enumerate(self.counts[:-1]):
            if found and before + found >= rank:
                low = self.bounds[place - 1] if place else 0.0
                return low + (self.bounds[place] - low) * max(rank - before, 0.0) / found
            before += found
        return self.bounds[-1]


class Histogram:
    """Filled and looked at by any thread.

    Durations are put aside and counted `FOLD_AT` at a time: sorted, they are counted by bucket and not one by one,
    which costs a quarter.
    """

    __slots__ = ("_bounds", "_counts", "_lock", "_new", "_sum")

    def __init__(self, bounds: tuple[float, ...] = SHORT) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._new: list[float] = []
        self._lock = Lock()

    def note(self, seconds: float) -> None:
        """Count a duration. One that a clock which was set back made negative is none."""
        new = self._new
        new.append(seconds)
        if len(new) >= FOLD_AT:
            self._fold()

    def _fold(self) -> None:
        with self._lock:
            # Another thread may note one in between: what is counted is what was taken, and no more.
            count = len(self._new)
            new = self._new[:count]
            del self._new[:count]
            new.sort()
            before = 0
            for place, bound in enumerate(self._bounds):
                upto = bisect_right(new, bound, before)
                self._counts[place] += upto - before
                before = upto
            self._counts[-1] += count - before
            negative = bisect_right(new, 0.0)
            self._sum += sum(new[negative:] if negative else new)

    def now(self) -> Distribution:
        self._fold()
        with self._lock:
            return Distribution(self._bounds, tuple(self._counts), self._sum)
