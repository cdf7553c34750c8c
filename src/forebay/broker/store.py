"""The store: what the broker asks of its storage. Two variants, one contract suite (`tests/contract/test_store_*.py`).

All methods are coroutines and safe to call at the same time. What a method returned is durable as its receipt says:
pushes and transactions survive a power cut; cursors, leases and acks survive a killed process (after a power cut the
last few milliseconds of acks may be delivered again).

Time comes from the store's own clock, never from a caller. Names, sizes and statuses were checked by the caller; a
store raises `ForebayError`s for what only it can know: `StoreUnavailable` (transient), `QueueFull`, `UnknownQueue`, and
`PayloadInClear` for an unsealed payload (`forebay.broker.encryption`) that is pushed to an encrypted queue.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec

from forebay.broker.delivery import Answer, Answered
from forebay.model.message import SeqRange
from forebay.model.queue import DEFAULT_GROUP, Queue, QueueOptions

if TYPE_CHECKING:
    import pyarrow as pa

Waker = Callable[[str, int], None]
"""Told of every commit that made messages available, or due at another time: the queue's name, and how many."""


PUSH_MAINTENANCE = "maintenance.push"
POP_MAINTENANCE = "maintenance.pop"
"""Flags of a store: switches that all its servers share."""


class PushItem(msgspec.Struct, frozen=True, gc=False):
    """One message on its way in. The payload is what came over the wire, byte for byte.

    A struct and no tuple, because it is the one object that every message costs, and a struct is made three times as
    fast.
    """

    queue: str
    partition: str
    payload: bytes
    transaction_id: str
    """Never empty: minted by whoever received the message when the producer gave none."""
    is_minted: bool = False
    """Whether the id was minted: then it cannot be a duplicate, and no index is kept of it."""
    trace_id: str = ""
    headers: bytes = b""
    is_binary: bool = False
    namespace: str = ""
    task: str = ""


class Pushed(msgspec.Struct, frozen=True, gc=False):
    """`queued`: stored under `seq`. `duplicate`: `seq` is the message that was there before."""

    status: str
    seq: int
    partition_id: str
    receipt: str


class PopRequest(NamedTuple):
    """Which messages, for whom, and how many. Either a queue, or a namespace and/or a task."""

    queue: str = ""
    partition: str | None = None
    namespace: str = ""
    task: str = ""
    group: str = DEFAULT_GROUP
    batch: int = 1
    partitions: int = 1
    auto_ack: bool = False
    subscription_mode: str = "all"
    """For a group that does not exist yet: `all`, `new`, or `from` together with `subscription_from_us`."""
    subscription_from_us: int = 0


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message on its way out."""

    seq: int
    queue: str
    partition: str
    partition_id: str
    transaction_id: str
    trace_id: str
    created_us: int
    payload: bytes
    headers: bytes
    is_binary: bool
    attempts: int = 0


class Popped(NamedTuple):
    """Messages of one or more partitions under one lease; empty when there is nothing now."""

    lease_id: str
    messages: Sequence[Message]
    """`message_columns` where a store has them as columns."""
    partitions_claimed: int


class Acknowledgement(msgspec.Struct, frozen=True, gc=False):
    partition_id: str
    group: str
    lease_id: str
    answer: Answer


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    answered: Answered
    queue: str
    partition: str


class Completed(NamedTuple):
    """A lease that was finished as a whole."""

    messages: int
    """How many were held under it, and are completed now."""
    partitions: list[tuple[str, str]]
    """The queue and the name of each partition that it covered."""


def judged_together(acknowledgements: Sequence[Acknowledgement]) -> dict[tuple[str, str, str], list[int]]:
    """Partition, group and lease, each with the places of the answers for it: those are judged in one step."""
    keys = [(one.partition_id, one.group, one.lease_id) for one in acknowledgements]
    if keys and keys.count(keys[0]) == len(keys):
        return {keys[0]: list(range(len(keys)))}
    together: dict[tuple[str, str, str], list[int]] = {}
    for place, key in enumerate(keys):
        together.setdefault(key, []).append(place)
    return together


class TransactionOutcome(NamedTuple):
    """All or nothing: when `error` is set, nothing of it happened."""

    pushed: Sequence[Pushed]
    acknowledged: list[Acknowledged]
    error: str = ""


class SeekTarget(NamedTuple):
    """Exactly one of them is set."""

    seq: int | None = None
    """The next message delivered is the first with this seq or a higher one."""
    time_us: int | None = None
    to_end: bool = False


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


class PartitionStatus(NamedTuple):
    name: str
    partition_id: str
    messages: int
    last_seq: int
    newest_us: int


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


class Store(Protocol):
    """Where queues live."""

    async def open(self, on_available: Waker) -> None:
        """Be ready: migrated, recovered, locked."""

    async def close(self) -> None: ...

    async def is_healthy(self) -> bool: ...

    # queues

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        """Make the queue, or give it these options in place of all it had."""

    async def queue(self, name: str) -> Queue | None: ...

    async def queues(self) -> list[QueueStatus]: ...

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]: ...

    async def delete_queue(self, name: str) -> bool:
        """Remove the queue with its messages, groups, dead letters and traces. False when there is none."""

    # the way in

    def push(self, items: Sequence[PushItem]) -> Awaitable[Sequence[Pushed]]:
        """Store the messages in order, durably, all or none; one answer each.

        Queues and partitions are made as needed. An id that its partition holds already is answered as a duplicate.
        """

    # the way out

    async def pop(self, request: PopRequest) -> Popped:
        """Claim messages. A new group that starts at a time (`new`, `from`) makes the queue that it names."""

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        """When a pop that found nothing may find what only waits for its time (a lease, a retry, a delay).

        None when there is no such thing. A hint: it may be earlier than needed.
        """

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]: ...

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        """Finish leases as a whole: what is held under one and not answered yet is completed, as if by an ack each.

        None for a lease that nobody holds: for it nothing changed.
        """

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        """Until when the lease now lasts (microseconds), for all its partitions; None when nobody holds it.

        A lease that was yielded by a failure is the holder's alone again.
        """

    async def release(self, lease_id: str) -> bool:
        """Undo a claim that reached nobody: no attempt was counted, and all of it is available at once.

        What was answered meanwhile stays answered. False when nobody holds the lease.
        """

    async def transact(
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        """All of it or nothing. A duplicate push or a refused ack makes it nothing."""

    # groups

    async def groups(self) -> list[GroupLag]: ...

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        """Set the group's cursors, on one partition or all; returns how many. Leases on them end."""

    async def delete_group(self, group: str, queue: str | None) -> int:
        """Forget the group, on one queue or all; returns how many partitions knew it."""

    # dead letters

    async def dead_letters(self, wanted: DeadLetterFilter, limit: int, offset: int) -> tuple[list[DeadMessage], int]:
        """Newest first, and how many there are in all."""

    async def replay_dead_letters(self, wanted: DeadLetterFilter) -> int:
        """Push them again as new messages at the end of their partitions, and remove them from the dead letters."""

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int: ...

    # messages, for browsing

    async def read(self, queue: str, from_seq: int, limit: int, partition: str | None = None) -> list[Message]: ...

    async def message(self, partition_id: str, transaction_id: str) -> Message | None: ...

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        """Remove one message: nobody gets it or sees it any more, and who holds it cannot answer it.

        Its id is free again. Its traces and dead letters stay. False when it is not there.
        """

    # traces

    async def add_trace(self, event: TraceEvent) -> None: ...

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]: ...

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]: ...

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]: ...

    # the store as a whole

    async def flag(self, name: str) -> bool:
        """A switch that all servers on this store share, such as `maintenance.push`."""

    async def set_flag(self, name: str, is_set: bool) -> None: ...

    async def apply_retention(self) -> int:
        """Remove what the queues' options no longer keep; returns how many messages."""

    # Arrow: many messages at once, as columns (`forebay.broker.arrow`)

    async def bounds(self, queue: str, time_us: int | None = None) -> QueueBounds:
        """What can be read of the queue now, and where a time is in it."""

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        """Messages as batches of `arrow.WIRE_SCHEMA`, in seq order; `RangeGone` where retention was faster.

        What is wrong with the request is raised here; the batches are read while somebody asks for them.
        """

    async def stage(self, queue: str, stage_id: str, name: StageName, batches: Sequence[pa.RecordBatch]) -> Staged:
        """Keep messages (`arrow.STAGED_SCHEMA`) durably until they are committed. Nobody sees them before."""

    async def commit_stages(self, producer: str, epoch: str, stage_ids: Sequence[str]) -> CommitOutcome:
        """Turn the stages into messages, all at one moment, once for a producer's epoch."""

    async def abort_stages(self, producer: str, epoch: str) -> int:
        """Forget what was staged and not committed; returns how many stages that were."""

    async def stage_figures(self) -> StageFigures: ...

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        """Remove stages, and forget commits, that are older than this; returns how many stages."""


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
