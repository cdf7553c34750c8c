"""Adaptive workers: one more while batches pile up and the destination is quick, half of them when there is little.

Every 5 s: more than 100 batches waiting and an average latency of at most 0.5 s add one worker; fewer than 10 waiting
for 30 s halve them. A destination that is slow gets no more workers: they would only make it slower.
"""

from __future__ import annotations

DECISION_SECONDS = 5.0
DEPTH_HIGH = 100
DEPTH_LOW = 10
LATENCY_HIGH_SECONDS = 0.5
IDLE_SECONDS = 30.0
EWMA_ALPHA = 0.3


class Latency:
    """The moving average of how long exports take (EWMA, alpha 0.3)."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.seconds = seconds if self.seconds == 0.0 else EWMA_ALPHA * seconds + (1 - EWMA_ALPHA) * self.seconds


class Scaler:
    """How many workers there should be."""

    def __init__(self, workers_min: int, workers_max: int, workers: int, *, idle_seconds: float = IDLE_SECONDS) -> None:
        self._idle_seconds = idle_seconds
        self._min, self._max = workers_min, workers_max
        self.workers = min(max(workers, workers_min), workers_max)
        self.adjustments = {"up": 0, "down": 0}
        self._quiet_since: float | None = None

    def decide(self, depth: int, latency_seconds: float, now: float) -> int:
        """The number of workers from now on, given how many batches wait and how long exports take."""
        if depth >= DEPTH_LOW:
            self._quiet_since = None
        elif self._quiet_since is None:
            self._quiet_since = now
        if depth > DEPTH_HIGH and latency_seconds <= LATENCY_HIGH_SECONDS:
            self._set(self.workers + 1)
        elif self._quiet_since is not None and now - self._quiet_since >= self._idle_seconds:
            self._quiet_since = now
            self._set(self.workers // 2)
        return self.workers

    def _set(self, workers: int) -> None:
        workers = min(max(workers, self._min), self._max)
        if workers != self.workers:
            self.adjustments["up" if workers > self.workers else "down"] += 1
        self.workers = workers
