"""Many messages at once, as columns: what is asked for and what is told. The protocol is in `forebay.broker.arrow`."""

from __future__ import annotations

from typing import NamedTuple

from forebay.model.message import SeqRange


class QueueBounds(NamedTuple):
    first_seq: int
    """The oldest message kept; `next_seq` when there is none."""
    next_seq: int
    """What the next message gets. Everything below it can be read and never changes."""
    size_bytes: int
    seq_at_time: int | None = None
    """The first message made at the time asked for, or later; `next_seq` when there is none."""


class RangeRequest(NamedTuple):
    """Which messages of a queue; both ends are included. What is None or empty does not narrow."""

    queue: str
    from_seq: int | None = None
    to_seq: int | None = None
    partitions: tuple[str, ...] = ()
    created_from_us: int | None = None
    created_to_us: int | None = None
    """Made before this."""
    bytes_max: int | None = None
    """Of payloads together; the first message is given whatever its size."""


class StageName(NamedTuple):
    """Who staged what: `epoch` is committed once, `part` is for people."""

    producer: str
    epoch: str
    part: str


class Staged(NamedTuple):
    stage_id: str
    messages: int
    size_bytes: int


class CommitOutcome(NamedTuple):
    is_repeated: bool
    """The epoch had been committed before; the rest says what was done then."""
    messages: int
    duplicates: int
    queues: dict[str, SeqRange]


class StageFigures(NamedTuple):
    stages: int
    size_bytes: int
    expired: int
    """Stages that nobody committed in time, since the store was opened."""
