"""What a store tells of its queues, groups, dead letters and traces, and the filters of these calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from forebay.broker.messages import Message
from forebay.model.histogram import Histogram
from forebay.model.queue import Queue

PIECE_LETTERS_MAX = 500
"""Removed or pushed again in one cycle of a store."""


class QueueStatus(NamedTuple):
    queue: Queue
    partitions: int
    first_seq: int
    next_seq: int
    messages: int
    """Kept at the moment."""
    pushed: int
    """Ever accepted."""
    size_bytes: int
    dead_letters: int
    oldest_us: int
    newest_us: int
    lost: int = 0
    """Accepted, and not readable any more."""


class LostMessages(NamedTuple):
    """Messages of one partition that were accepted and cannot be read any more."""

    queue: str
    partition: str | None
    """None where it is not known."""
    first_seq: int
    last_seq: int
    messages: int
    """How many those are; other partitions may have seqs between the first and the last."""
    reason: str
    found_us: int


class PartitionStatus(NamedTuple):
    name: str
    partition_id: str
    messages: int
    last_seq: int
    newest_us: int


class GroupLag(NamedTuple):
    """One group on one queue."""

    group: str
    queue: str
    subscription_mode: str
    subscription_from_us: int
    created_us: int
    partitions: int
    partitions_with_lag: int
    lag_messages: int
    lag_seconds: float
    leased: int
    last_active_us: int
    dead_letters: int = 0
    """That are kept."""


class StoreTimes(NamedTuple):
    """How long a store takes over what it does."""

    commit: Histogram
    """Over work that is committed together."""
    append: Histogram | None = None
    sync: Histogram | None = None
    """Over what a commit log makes durable, and the disk's part of that. None without one."""


class StoreFigures(NamedTuple):
    """All queues and groups in numbers, as of one moment."""

    queues: Sequence[QueueStatus]
    groups: Sequence[GroupLag]
    at_us: int


class SeekTarget(NamedTuple):
    """Exactly one of them is set."""

    seq: int | None = None
    """The next message delivered is the first with this seq or a higher one."""
    time_us: int | None = None
    to_end: bool = False


class SeekPreview(NamedTuple):
    """What a seek would change for a group, in messages that are kept now."""

    from_seq: int
    """The seq that the target stands for at this moment."""
    is_new: bool
    """There is no such group: it would be made, and has everything before it until then."""
    partitions: int
    waiting: int
    """Not finished by the group, leased ones included."""
    waiting_after: int
    skipped: int
    """Those that wait and would not be delivered any more."""
    repeated: int
    """Those that the group has passed and would get, again or for the first time."""
    leased: int
    """Those that a consumer holds: its answers would be refused."""


class DeadLetterFilter(NamedTuple):
    queue: str | None = None
    group: str | None = None
    partition: str | None = None
    from_us: int | None = None
    to_us: int | None = None
    transaction_id: str | None = None


class DeadMessage(NamedTuple):
    letter_id: int
    message: Message
    group: str
    reason: str
    failed_us: int


class TraceEvent(NamedTuple):
    partition_id: str
    transaction_id: str
    group: str
    event_type: str
    names: tuple[str, ...]
    data: bytes
    """JSON text as it came."""
    created_us: int
