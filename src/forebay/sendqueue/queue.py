"""What a send queue does, whichever way it keeps its batches. The variants are in `queues/`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, Protocol, TypeVar

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
    """Of `batches`: held in memory, whether they are on disk as well or not."""
    unwritten_batches: int = 0
    """Of `batches`: in memory alone, so that a kill -9 costs them."""
    memory_bytes: int = 0
    disk_bytes: int = 0
    """Bytes of the chunk files, consumed parts included."""
    lost: int = 0
    """Batches that were counted when it was opened, or accepted since, and cannot be read from its disk."""


class Recount(NamedTuple):
    """The batches of a queue, counted one by one, beside the count that it keeps."""

    kept: int
    """As `figures` had them when the counting began."""
    counted: int
    is_exact: bool = True
    """Whether nothing was claimed from its disk meanwhile."""


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

    def recount(self) -> Recount:
        """Count what is in memory, and read every block on disk that is still to be sent. May take a while."""

    @property
    def fill_ratio(self) -> float:
        """How full it is, 0 to 1, by whichever limit is nearer; more where limits were lowered meanwhile."""

    def sync(self) -> None:
        """Make durable what this variant keeps on disk. May take a while: call it from a thread of its own."""

    def close(self) -> None:
        """Keep on disk what is not confirmed, in every mode. Claims that are still out count as not confirmed."""
