"""Whether the store takes pushes: a breaker. Decisions only; every push notes here what happened."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class StoreHealth:
    """Closed (`is_healthy`) until something fails; open until a write succeeds."""

    is_healthy: bool = True
    reason: str = ""
    since_us: int = 0
    failovers: int = 0
    """How often the breaker opened."""

    def failed(self, reason: str, now_us: int) -> bool:
        """Whether that is news."""
        if not self.is_healthy:
            return False  # the first reason tells most: later ones only say that it is still so
        self.reason = reason
        self.is_healthy = False
        self.since_us = now_us
        self.failovers += 1
        return True

    def succeeded(self, now_us: int) -> bool:
        """Whether that is news."""
        if self.is_healthy:
            return False
        self.is_healthy = True
        self.reason = ""
        self.since_us = now_us
        return True
