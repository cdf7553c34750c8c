"""Time as a parameter, so that a test can turn the clock and nothing has to sleep.

`now_us` is the wall clock in microseconds since 1970 (UTC) and may step either way: use it for what people read and
for calendar decisions. `monotonic` never goes back: use it for waiting and for leases.
"""

from __future__ import annotations

import time
from typing import Protocol

SECOND_US = 1_000_000


class Clock(Protocol):
    def now_us(self) -> int: ...

    def monotonic(self) -> float: ...


class SystemClock:
    """The machine's own clocks."""

    def now_us(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.monotonic()
