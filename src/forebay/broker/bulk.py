"""Many messages at once, as columns: requests and responses. The protocol is in `forebay.broker.arrow`."""

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
    """The first message made at the requested time, or later; `next_seq` when there is none."""
    identity: str = ""
    """Of this queue, and of no other that had or will have its name."""
    removed_seq: int = 0
    """The last message that retention removed, of the requested partitions; 0 when there is none."""
    lost: tuple[LostSpan, ...] = ()
    """What cannot be read any more, of the requested partitions."""


class LostSpan(NamedTuple):
    """Messages that a damage has taken: some of those between the two seqs, both included."""

    first_seq: int
    last_seq: int
    messages: int


def identity_of(number: int, created_us: int) -> str:
    """No number is used twice in a store, and no two stores make a queue of one number in the same microsecond."""
    return f"{number}-{created_us}"


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
    identity: str | None = None
    """Of the queue that is meant: another one of its name is refused (`QueueReplaced`)."""
    removed_up_to: int | None = None
    """What retention removed up to this seq may be absent. Of the requested partitions nothing else may: what is
    missing behind it, or was lost, raises `RangeIncomplete`. None: only a front that is missing raises it."""


class StageName(NamedTuple):
    """Which writer staged what: `epoch` is committed once per queue and `write`, `part` is for people."""

    producer: str
    epoch: str
    part: str
    write: str = ""
    """Tells several writes of one epoch to one queue apart."""


class Content(NamedTuple):
    """What rows hold, whatever their order and however they are cut into stages."""

    messages: int = 0
    size_bytes: int = 0
    checksum: int = 0
    """The sum of the rows' own (`arrow.staged_rows.checksum_of`), modulo 2^63."""

    def plus(self, other: Content) -> Content:
        checksum = (self.checksum + other.checksum) % CHECKSUMS
        return Content(self.messages + other.messages, self.size_bytes + other.size_bytes, checksum)

    def __str__(self) -> str:
        return f"{self.messages} messages, {self.size_bytes} bytes, checksum {self.checksum:016x}"


CHECKSUMS = 1 << 63


class Staged(NamedTuple):
    stage_id: str
    content: Content


class StagesOf(NamedTuple):
    """The stages of a commit, or of an abort: all of an epoch, or only those of one write or one queue."""

    producer: str
    epoch: str
    write: str = ""
    queue: str | None = None


class CommitOutcome(NamedTuple):
    is_repeated: bool
    """All of it had been committed before; the rest says what was done then."""
    messages: int
    duplicates: int
    queues: dict[str, SeqRange]


class StageFigures(NamedTuple):
    stages: int
    size_bytes: int
    expired: int
    """Stages that were not committed in time, since the store was opened."""
