"""What a send queue does, whichever way it keeps its batches. The variants are in `queues/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from forebay.sendqueue.entry import Entry

Batch = TypeVar("Batch")

RELEASED_MAX = 64
"""While so many batches wait for their next attempt, no others are claimed."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much may be in a queue, unconfirmed."""

    batches_max: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Codec(Generic[Batch]):
    """How a batch becomes bytes, and bytes become a batch again. `size_of` is what counts against the limits."""

    size_of: Callable[[Batch], int]
    accepted_us: Callable[[Batch], int]
    """When it was accepted, by the wall clock; 0 if that is not known."""
    encode: Callable[[Batch], bytes]
    decode: Callable[[bytes], Batch]
    """Raises ValueError for bytes that are no batch."""


@dataclass(frozen=True, slots=True)
class Figures:
    """A queue at one moment."""

    batches: int
    bytes: int
    claimed: int
    """Of `batches`: under way, or waiting for their next attempt."""
    oldest_us: int | None
    """When the oldest batch that is not confirmed was accepted (wall clock), if that is known."""
    memory_batches: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0
    """Bytes of the chunk files, consumed parts included."""


class SendQueue(Protocol[Batch]):
    """Batches in line. Methods may be called from any thread and never wait for room or for a batch."""

    limits: Limits
    """The limits in force; they may be changed while the queue is in use."""

    def push(self, batch: Batch) -> None:
        """Put a batch at the end of the line.

        Raises SendQueueFull when a limit would be exceeded, BatchTooLarge when it never fits, SendQueueWriteFailed
        when the disk refuses; nothing was accepted then.
        """

    def claim(self) -> Entry[Batch] | None:
        """The first batch in line that is unclaimed and due, for the caller alone; None if there is none."""

    def confirm(self, entry: Entry[Batch]) -> None:
        """The destination has the batch (or it is a dead letter, or dropped): it leaves the queue."""

    def release(self, entry: Entry[Batch], delay_seconds: float = 0.0) -> None:
        """Back to its place in line, to be claimed again after `delay_seconds`."""

    def hasten(self) -> None:
        """What waits for its next attempt need not wait any longer: the destination is back."""

    def due_in(self) -> float | None:
        """In how many seconds the next released batch may be claimed; None if none waits."""

    def drop_oldest(self) -> Entry[Batch] | None:
        """Remove the first batch in line that is not under way, and return it; None if there is none."""

    def figures(self) -> Figures: ...

    def sync(self) -> None:
        """Make durable what this variant keeps on disk. May take a while: call it from a thread of its own."""

    def close(self) -> None:
        """Keep on disk what is not confirmed, in every mode. Claims that are still out count as not confirmed."""
