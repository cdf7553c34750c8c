"""The figures of the demo, and what is wrong with them. Pure: nothing is read or started here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from forebay.cli.demo.clicks import ScoredClick
from forebay.cli.demo.metrics import Sample

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
    """Each key has to be found once, with its value. What has another key is wrong too."""
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


class Received(Protocol):
    """What a destination tells of itself."""

    clicks: list[tuple[int, ScoredClick]]
    samples: dict[Sample, float]
    requests: int
    sent_again: int


@dataclass(frozen=True, slots=True)
class Delivery:
    """What reached the destination. Each click and sample counts once, however often it was sent."""

    clicks: Comparison
    samples: Comparison
    requests: int
    sent_again: int
    """Clicks that came again after an answer was lost."""
    away_seconds: float

    @classmethod
    def of(
        cls,
        received: Received,
        clicks: Mapping[int, ScoredClick],
        samples: Mapping[Sample, float],
        away_seconds: float,
    ) -> Delivery:
        return cls(
            compare(clicks, received.clicks),
            compare(samples, received.samples.items()),
            received.requests,
            received.sent_again,
            away_seconds,
        )


@dataclass(frozen=True, slots=True)
class Audit:
    """What `forebay audit` said."""

    is_balanced: bool
    queues: int
    messages: int
    differences: Sequence[str]


@dataclass(frozen=True, slots=True)
class DemoResult:
    requested: int
    pushing: Pushing
    pushed: Comparison
    joined: Comparison
    per_minute: Comparison
    parquet: Comparison
    scored: Comparison
    delivery: Delivery
    parcels: Mapping[str, int]
    """How many there are, by state."""
    audit: Audit
    backlog_clicks_per_second: float
    """The first half, from Spark being ready to all of it joined: the first batch and its compilation are in it."""
    latency: Latency | None
    spark_start_seconds: float
    worker_seconds: float
    """From the kill of the worker until another one was ready."""
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
            "queue clicks-scored": self.scored,
            "the HTTP destination": self.delivery.clicks,
            "remote write": self.delivery.samples,
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
        if self.pushing.accepted != self.requested:
            found.append(f"{self.requested:,} clicks were to be accepted, and {self.pushing.accepted:,} were")
        if not 0 < self.pushing.accepted_before_kill < self.requested:
            found.append("the server was not killed in the middle")
        for name, place in self.places.items():
            if not place.is_exact:
                found.append(
                    f"{name}: {place.expected:,} expected, {place.found:,} found; "
                    f"{place.lost:,} lost, {place.duplicated:,} duplicated, {place.wrong:,} wrong"
                )
        unfinished = {state: count for state, count in self.parcels.items() if state != "COMPLETE"}
        if unfinished or not self.parcels:
            states = ", ".join(f"{count:,} {state}" for state, count in sorted(unfinished.items())) or "there are none"
            found.append(f"all parcels were to be COMPLETE: {states}")
        if not self.delivery.away_seconds:
            found.append("the destination was never away")
        if not self.audit.is_balanced:
            found.append(f"forebay audit: {'; '.join(self.audit.differences)}")
        return found


def latency_of(seconds: Iterable[float]) -> Latency | None:
    """None if there is nothing to measure."""
    found = sorted(seconds)
    if not found:
        return None
    return Latency(found[len(found) // 2], found[min(len(found) * 99 // 100, len(found) - 1)], found[-1], len(found))
