"""How long a batch waits before its next attempt."""

from __future__ import annotations

import random
from dataclasses import dataclass

JITTER = 0.1
"""Each wait is up to a tenth longer or shorter, so that batches that failed together do not come back together."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """`interval` after the first failure, `multiplier` times more after each further one, `max` at the most."""

    interval_seconds: float = 5.0
    multiplier: float = 2.0
    max_seconds: float = 300.0
    is_enabled: bool = True
    """If not, every wait is the interval."""

    def seconds(self, attempts: int, retry_after: float | None = None, chance: random.Random | None = None) -> float:
        """The wait after this many failed attempts. `retry_after` is what the destination requested: never less."""
        exponent = min(max(attempts - 1, 0), 64) if self.is_enabled else 0
        wait = min(self.interval_seconds * self.multiplier**exponent, self.max_seconds)
        wait *= 1 + JITTER * (2 * (chance or random).random() - 1)
        return max(wait, retry_after or 0.0)
