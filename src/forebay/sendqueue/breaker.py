"""The circuit breaker: after failures in a row a destination is left alone for a while, then tried with one batch.

    closed ── failures in a row reach the threshold ──▶ open ── reset time since the last failure ──▶ half-open
      ▲                                                   ▲                                             │
      └──────────────────── the probe succeeds ───────────┼─────────────────────────────────────────────┤
                                                          └──────────── the probe fails ────────────────┘

Times are monotonic. Only what says that the destination is away or overloaded counts as a failure: a destination that
refuses one batch is there.
"""

from __future__ import annotations

from enum import StrEnum

from forebay.clock import Clock


class State(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One destination's breaker. Every `allow` that says yes is followed by `success`, `failure` or `undecided`."""

    def __init__(
        self, clock: Clock, *, threshold: int = 5, reset_seconds: float = 30.0, is_enabled: bool = True
    ) -> None:
        self._clock = clock
        self._threshold = threshold
        self._reset_seconds = reset_seconds
        self._is_enabled = is_enabled
        self._failures = 0
        self._last_failure = 0.0
        self._is_probing = False
        self.state = State.CLOSED
        self.opened = 0
        """How often it has opened."""
        self.rejected = 0
        """How often a send was not allowed."""

    def allow(self) -> bool:
        """Whether a batch may be sent now."""
        if self.state is State.CLOSED:
            return True
        if self.state is State.OPEN and self.seconds_until_probe() <= 0:
            self.state = State.HALF_OPEN
        if self.state is State.HALF_OPEN and not self._is_probing:
            self._is_probing = True
            return True
        self.rejected += 1
        return False

    def seconds_until_probe(self) -> float:
        """How long until a probe may be sent; 0 if one may be, or if the breaker is closed."""
        if self.state is not State.OPEN:
            return 0.0
        return max(self._last_failure + self._reset_seconds - self._clock.monotonic(), 0.0)

    def success(self) -> bool:
        """The destination took a batch, or refused just that one. Whether this closed the breaker."""
        was_closed = self.state is State.CLOSED
        self.state = State.CLOSED
        self._failures = 0
        self._is_probing = False
        return not was_closed

    def failure(self) -> None:
        """The destination is away or overloaded."""
        self._is_probing = False
        self._failures += 1
        self._last_failure = self._clock.monotonic()
        if not self._is_enabled:
            return
        if self.state is State.HALF_OPEN or self._failures >= self._threshold:
            self.opened += self.state is not State.OPEN
            self.state = State.OPEN

    def undecided(self) -> None:
        """The send was given up before there was an answer (the process stops): the next one may probe."""
        self._is_probing = False
