"""A clock that stands still until a test moves it."""

from __future__ import annotations

from forebay.clock import SECOND_US

DAY_US = 86_400 * SECOND_US
START_US = 1_767_225_600 * SECOND_US
"""2026-01-01T00:00:00Z."""


class FakeClock:
    """Wall clock and monotonic clock move together, except in `step`, which is an operator setting the wall clock."""

    def __init__(self, now_us: int = START_US) -> None:
        self._now_us = now_us
        self._monotonic = 0.0

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now_us += int(seconds * SECOND_US)
        self._monotonic += seconds

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or back; monotonic time does not notice."""
        self._now_us += int(seconds * SECOND_US)
