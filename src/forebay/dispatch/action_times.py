"""How long workers have parcels: from a lease to its completion, by action class.

What one server leased and another completed is not known to either, nor is a lease that expired. Remembered are
`LEASES_MAX` leases at the most, and `CLASSES_MAX` classes: what comes beyond those is counted as `other`.
"""

from __future__ import annotations

from forebay.clock import Clock
from forebay.model.histogram import LONG, Distribution, Histogram

LEASES_MAX = 10_000
CLASSES_MAX = 200
OTHER = "other"


class ActionTimes:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._leases: dict[str, tuple[str, float]] = {}
        self._classes: dict[str, Histogram] = {}

    def began(self, lease_id: str, action_class: str) -> None:
        if len(self._leases) >= LEASES_MAX:
            del self._leases[next(iter(self._leases))]
        self._leases[lease_id] = (action_class, self._clock.monotonic())

    def ended(self, lease_id: str) -> None:
        """It was completed."""
        found = self._leases.pop(lease_id, None)
        if found is None:
            return
        name, began = found
        if name not in self._classes and len(self._classes) >= CLASSES_MAX:
            name = OTHER
        self._classes.setdefault(name, Histogram(LONG)).note(self._clock.monotonic() - began)

    def forget(self, lease_id: str) -> None:
        """It was given back."""
        self._leases.pop(lease_id, None)

    def now(self) -> dict[str, Distribution]:
        return {name: histogram.now() for name, histogram in self._classes.items()}
