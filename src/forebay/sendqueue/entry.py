"""A batch in line, and the place where those wait that a worker has released."""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

Batch = TypeVar("Batch")

NOT_ON_DISK = -1


class Entry(Generic[Batch]):
    """One batch in a queue. The place in line and on disk is the queue's; attempts and parts are the worker's."""

    __slots__ = (
        "accepted_us",
        "attempts",
        "batch",
        "end",
        "first_attempt",
        "is_searched",
        "number",
        "parts",
        "prepared",
        "size",
        "start",
        "tier",
    )

    def __init__(self, number: int, batch: Batch, size: int, accepted_us: int) -> None:
        self.number = number
        """Its place in line."""
        self.batch = batch
        self.size = size
        self.accepted_us = accepted_us
        """When it was accepted, by the wall clock; 0 if that is not known any more."""
        self.attempts = 0
        """How often this process has tried to send it."""
        self.first_attempt: float | None = None
        """When this process first tried, by the monotonic clock."""
        self.parts: list[Batch] = [batch]
        """What is still to be sent of it, once it was split."""
        self.is_searched = False
        """Whether it is being split to find the items that its destination refuses."""
        self.prepared: object = None
        """The first part as it goes over the wire, if that was done ahead."""
        self.start = NOT_ON_DISK
        """Where its block begins in a FastQueue, and where it ends."""
        self.end = NOT_ON_DISK
        self.tier = 0
        """Which part of a hybrid queue holds it."""

    def __lt__(self, other: Entry[Batch]) -> bool:
        return self.number < other.number


class Released(Generic[Batch]):
    """Batches that were released: those whose time has come, in line order, and those that wait for it."""

    __slots__ = ("_due", "_waiting")

    def __init__(self) -> None:
        self._due: list[Entry[Batch]] = []
        self._waiting: list[tuple[float, Entry[Batch]]] = []

    def __len__(self) -> int:
        return len(self._due) + len(self._waiting)

    def add(self, entry: Entry[Batch], due: float) -> None:
        heapq.heappush(self._waiting, (due, entry))

    def take(self, now: float) -> Entry[Batch] | None:
        """The first in line whose time has come."""
        while self._waiting and self._waiting[0][0] <= now:
            heapq.heappush(self._due, heapq.heappop(self._waiting)[1])
        return heapq.heappop(self._due) if self._due else None

    def take_oldest(self) -> Entry[Batch] | None:
        """The first in line, whether its time has come or not."""
        if not self:
            return None
        oldest = min([*self._due, *(entry for _, entry in self._waiting)])
        self.discard(oldest.number)
        return oldest

    def discard(self, number: int) -> bool:
        """Drop the batch of this number; whether it was here."""
        before = len(self)
        self._due = [entry for entry in self._due if entry.number != number]
        self._waiting = [pair for pair in self._waiting if pair[1].number != number]
        heapq.heapify(self._due)
        heapq.heapify(self._waiting)
        return len(self) < before

    def hasten(self) -> None:
        """Everything is due now."""
        for _, entry in self._waiting:
            heapq.heappush(self._due, entry)
        self._waiting.clear()

    def due_in(self, now: float) -> float | None:
        """Seconds until the next one is due; None if there is none."""
        if self._due:
            return 0.0
        return max(self._waiting[0][0] - now, 0.0) if self._waiting else None

    def entries(self) -> list[Entry[Batch]]:
        """All of them, in line order."""
        return sorted([*self._due, *(entry for _, entry in self._waiting)])
