"""Batches in memory, as the objects that were pushed: nothing is serialised, and nothing outlives the process.

`HybridQueue` puts a FastQueue behind it, so that a graceful stop loses nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from threading import Lock
from typing import Generic, TypeVar

from forebay.clock import Clock
from forebay.errors import BatchTooLarge, SendQueueFull
from forebay.sendqueue.entry import Entry, Released
from forebay.sendqueue.queue import RELEASED_MAX, Codec, Figures, Limits, Recount

Batch = TypeVar("Batch")


class MemoryQueue(Generic[Batch]):
    """A `SendQueue` in memory. Bounded by the number of batches and by their bytes."""

    def __init__(self, limits: Limits, codec: Codec[Batch], clock: Clock) -> None:
        self.limits = limits
        self._size_of = codec.size_of
        self._accepted_us = codec.accepted_us
        self._clock = clock
        self._lock = Lock()
        self._line: deque[Entry[Batch]] = deque()
        self._claimed: dict[int, Entry[Batch]] = {}
        self._released: Released[Batch] = Released()
        self._number = 0
        self._batches = 0
        self._bytes = 0

    def push(self, batch: Batch) -> None:
        size = self._size_of(batch)
        with self._lock:
            self.check_room(size)
            self._number += 1
            self._line.append(Entry(self._number, batch, size, self._accepted_us(batch)))
            self._batches += 1
            self._bytes += size

    def try_push_below(self, batch: Batch, ratio: float) -> bool:
        """Push if the queue is less full than this ratio, by either limit. Raises as `push` does."""
        size, limits = self._size_of(batch), self.limits
        with self._lock:
            if self._batches >= ratio * limits.batches_max or self._bytes >= ratio * limits.bytes_max:
                return False
            self.check_room(size)
            self._number += 1
            self._line.append(Entry(self._number, batch, size, self._accepted_us(batch)))
            self._batches += 1
            self._bytes += size
            return True

    def check_room(self, size: int) -> None:
        """Raise what keeps a batch of this size out."""
        limits = self.limits
        if self._batches < limits.batches_max and self._bytes + size <= limits.bytes_max:
            return
        if size > limits.bytes_max:
            raise BatchTooLarge(size, limits.bytes_max)
        raise SendQueueFull(self._batches, limits.batches_max, self._bytes, limits.bytes_max)

    def claim(self) -> Entry[Batch] | None:
        with self._lock:
            entry = self._next()
            if entry is not None:
                self._claimed[entry.number] = entry
            return entry

    def _next(self) -> Entry[Batch] | None:
        released = self._released
        if released:
            entry = released.take(self._clock.monotonic())
            if entry is not None or len(released) >= RELEASED_MAX:
                return entry
        return self._line.popleft() if self._line else None

    def confirm(self, entry: Entry[Batch]) -> None:
        with self._lock:
            if self._claimed.pop(entry.number, None) is not None:
                self._batches -= 1
                self._bytes -= entry.size

    def release(self, entry: Entry[Batch], delay_seconds: float = 0.0) -> None:
        with self._lock:
            if self._claimed.pop(entry.number, None) is not None:
                self._released.add(entry, self._clock.monotonic() + delay_seconds)

    def hasten(self) -> None:
        with self._lock:
            self._released.hasten()

    def due_in(self) -> float | None:
        with self._lock:
            return self._released.due_in(self._clock.monotonic())

    def drop_oldest(self) -> Entry[Batch] | None:
        with self._lock:
            entry = self._released.take_oldest() or (self._line.popleft() if self._line else None)
            if entry is not None:
                self._batches -= 1
                self._bytes -= entry.size
            return entry

    def figures(self) -> Figures:
        with self._lock:
            oldest = min((entry.accepted_us for entry in self._firsts()), default=None)
            held = len(self._claimed) + len(self._released)
            return Figures(
                batches=self._batches,
                bytes=self._bytes,
                claimed=held,
                oldest_us=oldest,
                memory_batches=self._batches,
                unwritten_batches=self._batches,
                memory_bytes=self._bytes,
            )

    def recount(self) -> Recount:
        with self._lock:
            return Recount(self._batches, len(self._line) + len(self._claimed) + len(self._released))

    @property
    def fill_ratio(self) -> float:
        return max(self._batches / self.limits.batches_max, self._bytes / self.limits.bytes_max)

    def is_empty(self) -> bool:
        """Whether everything is confirmed."""
        return self._batches == 0

    def _firsts(self) -> Iterator[Entry[Batch]]:
        yield from self._claimed.values()
        yield from self._released.entries()
        if self._line:
            yield self._line[0]

    def unconfirmed(self) -> list[Entry[Batch]]:
        """All of them, in line order."""
        with self._lock:
            return sorted([*self._claimed.values(), *self._released.entries(), *self._line])

    def sync(self) -> None:
        """Nothing is on disk."""

    def close(self) -> None:
        """What is not confirmed goes with the process."""
