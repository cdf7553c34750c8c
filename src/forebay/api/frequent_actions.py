"""Actions that are done over and over, and are logged once in a while."""

from __future__ import annotations

from collections import OrderedDict

from forebay.clock import Clock

EVERY_SECONDS = 600.0
KNOWN_MAX = 10_000
"""Beyond this the oldest are forgotten, and logged again."""

Action = tuple[str, str, str, int]


class FrequentActions:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._logged: OrderedDict[Action, float] = OrderedDict()

    def is_due(self, action: Action) -> bool:
        """Whether it was not logged lately. If so, it counts as logged."""
        now = self._clock.monotonic()
        logged = self._logged.get(action)
        if logged is not None and now - logged < EVERY_SECONDS:
            return False
        self._logged[action] = now
        self._logged.move_to_end(action)
        if len(self._logged) > KNOWN_MAX:
            self._logged.popitem(last=False)
        return True
