"""The figures of the demo, and what is wrong with them. Pure: nothing is read or started here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found in one place, beside what plain Python computes from the same input."""

    expected: int
    found: int
    lost: int
    duplicated: int
    wrong: int

    @property
    def is_exact(self) -> bool:
        return not (self.lost or self.duplicated or self.wrong)


def compare(expected: Mapping[K, V], found: Iterable[tuple[K, V]]) -> Comparison:
    """Each key has to be found once, with its value. What has a key that nobody expects is wrong too."""
    seen: Counter[K] = Counter()
    wrong = rows = 0
    for key, value in found:
        rows += 1
        seen[key] += 1
        wrong += key not in expected or expected[key] != value
    return Comparison(
        expected=len(expected),
        found=rows,
        lost=sum(key not in seen for key in expected),
        duplicated=sum(times - 1 for times in seen.values()),
        wrong=wrong,
    )


@dataclass(frozen=True, slots=True)
class Pushing:
    """What the producer saw."""

    accepted: int
    """Clicks that the server answered for as durable."""
    accepted_before_kill: int
    repeated: int
    """Clicks that were durable before the kill took the answer; the second push found them there."""
    clicks_per_second: float
    """Of the first half, one request at a time, while Spark started beside it."""
    outage_seconds: float
    """From the kill to the first answer of the server that was started again."""


@dataclass(frozen=True, slots=True)
class Latency:
    median_seconds: float
    p99_seconds: float
    max_seconds: float
    clicks: int


@dataclass(frozen=True, slots=True)
class DemoResult:
    asked_for: int
    pushing: Pushing
    pushed: Comparison
    joined: Comparison
    per_minute: Comparison
    parquet: Comparison
    backlog_clicks_per_second: float
    """The first half, from Spark being ready to all of it joined: the first batch and its compilation are in it."""
    latency: Latency | None
    spark_start_seconds: float
    seconds: float
    rows: Sequence[Mapping[str, Any]]
    """A few of the delivered rows."""

    @property
    def places(self) -> dict[str, Comparison]:
        return {
            "queue clicks": self.pushed,
            "queue clicks-joined": self.joined,
            "queue clicks-per-minute": self.per_minute,
            "Parquet": self.parquet,
        }

    @property
    def lost(self) -> int:
        return sum(place.lost for place in self.places.values())

    @property
    def duplicated(self) -> int:
        return sum(place.duplicated for place in self.places.values())

    @property
    def wrong(self) -> int:
        return sum(place.wrong for place in self.places.values())

    def complaints(self) -> list[str]:
        """What is not as it has to be; nothing, if all is well."""
        found = []
        if self.pushing.accepted != self.asked_for:
            found.append(f"{self.asked_for:,} clicks were to be accepted, and {self.pushing.accepted:,} were")
        if not 0 < self.pushing.accepted_before_kill < self.asked_for:
            found.append("the server was not killed in the middle")
        for name, place in self.places.items():
            if not place.is_exact:
                found.append(
                    f"{name}: {place.expected:,} expected, {place.found:,} found; "
                    f"{place.lost:,} lost, {place.duplicated:,} duplicated, {place.wrong:,} wrong"
                )
        return found


def latency_of(seconds: Iterable[float]) -> Latency | None:
    """None if there is nothing to measure."""
    found = sorted(seconds)
    if not found:
        return None
    return Latency(found[len(found) // 2], found[min(len(found) * 99 // 100, len(found) - 1)], found[-1], len(found))
