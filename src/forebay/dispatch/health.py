"""Whether the queues of dispatch are well: what a person ought to look at. Pure, over samples of the sizes.

| check | warns when |
|---|---|
| `warm` | more than 10 parcels of an action class wait warm |
| `cold` | more than 75,000 parcels wait cold |
| `cold-growth` | more than 10,000 wait cold, and more than at the oldest of 12 samples, which are taken over a minute |
| `no-worker` | parcels of an action class wait, and no worker has requested it within a minute |
| `no-exporter` | parcels are EXPORTING, and what they wait for has had no consumer group for a minute |

A warning is no fault of the server's: it serves, and `/readyz` does not change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

SAMPLES = 12
SAMPLE_SECONDS = 5.0

Check = Literal["warm", "cold", "cold-growth", "no-worker", "no-exporter"]


class Thresholds(NamedTuple):
    warm_parcels: int = 10
    """Of one action class."""
    cold_growing_parcels: int = 10_000
    cold_parcels: int = 75_000


class HealthWarning(NamedTuple):
    check: Check
    action_class: str
    """Empty: of all together."""
    message: str


class ColdHistory:
    """The last samples of how many parcels wait cold, of all classes together."""

    def __init__(self) -> None:
        self._samples: deque[int] = deque(maxlen=SAMPLES)

    def note(self, cold_parcels: int) -> None:
        self._samples.append(cold_parcels)

    def growth(self) -> int:
        """How many more than at the oldest sample; 0 as long as there are fewer than 12 samples."""
        return self._samples[-1] - self._samples[0] if len(self._samples) == SAMPLES else 0


def warnings(
    warm: Mapping[str, int],
    cold: Mapping[str, int],
    growth: int,
    without_worker: Iterable[str] = (),
    untaken: Iterable[str] = (),
    thresholds: Thresholds = Thresholds(),  # noqa: B008 -- a tuple of numbers
) -> list[HealthWarning]:
    """What ought to be looked at, by check, then by action class."""
    found = [
        HealthWarning("warm", name, f"{size} parcels wait warm (more than {thresholds.warm_parcels})")
        for name, size in sorted(warm.items())
        if size > thresholds.warm_parcels
    ]
    total = sum(cold.values())
    if total > thresholds.cold_parcels:
        found.append(HealthWarning("cold", "", f"{total} parcels wait cold (more than {thresholds.cold_parcels})"))
    if total > thresholds.cold_growing_parcels and growth > 0:
        seconds = SAMPLES * SAMPLE_SECONDS
        found.append(
            HealthWarning("cold-growth", "", f"{total} parcels wait cold, {growth} more than {seconds:g} s ago")
        )
    found.extend(
        HealthWarning("no-worker", name, "parcels wait, and no worker asks for this action class")
        for name in sorted(without_worker)
    )
    found.extend(
        HealthWarning(
            "no-exporter", "", f"parcels wait for {name}, and nothing takes what is there: is there such a destination?"
        )
        for name in sorted(untaken)
    )
    return found
