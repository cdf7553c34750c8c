"""The store: what the broker asks of its storage. Two variants, one contract suite (`tests/contract/test_store_*.py`).

All methods are coroutines and safe to call at the same time. What a method returned is durable as its receipt says:
pushes and transactions survive a power cut; cursors, leases and acks survive a killed process (after a power cut the
last few milliseconds of acks may be delivered again).

Time comes from the store's own clock, never from a caller. Names, sizes and statuses were checked by the caller; a
store raises `ForebayError`s for what only it can know: `StoreUnavailable` (transient), `QueueFull`, `UnknownQueue`, and
`PayloadInClear` for an unsealed payload (`forebay.broker.encryption`) that is pushed to an encrypted queue.

The values it speaks in: `messages` for the way in and out, `overview` for looking and seeking, `bulk` for Arrow.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

from forebay.broker.bulk import (
    CommitOutcome,
    Content,
    QueueBounds,
    RangeRequest,
    Staged,
    StageFigures,
    StageName,
    StagesOf,
)
from forebay.broker.flow_rows import FlowRow
from forebay.broker.messages import (
    ANSWER_BYTES_MAX,
    Acknowledged,
    Acknowledgement,
    Completed,
    Message,
    Popped,
    PopRequest,
    Pushed,
    TransactionOutcome,
)
from forebay.broker.overview import (
    DeadLetterFilter,
    DeadMessage,
    GroupLag,
    LostMessages,
    PartitionStatus,
    QueueStatus,
    SeekPreview,
    SeekTarget,
    StoreFigures,
    StoreTimes,
    TraceEvent,
)
from forebay.broker.room_work import Work
from forebay.model.push_run import PushRun
from forebay.model.queue import Queue, QueueOptions

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

Waker = Callable[[str, int], None]
"""Called after every commit that made messages available, or due at another time: the queue's name, and how many."""

PUSH_MAINTENANCE = "maintenance.push"
POP_MAINTENANCE = "maintenance.pop"
"""Flags of a store: switches that all its servers share."""


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

    async def queues(self, name: str | None = None) -> list[QueueStatus]:
        """All queues, or one: none if there is no such queue."""

    async def lost_messages(self) -> list[LostMessages]:
        """What was accepted and cannot be read any more, by partition. Everything else goes on behind it."""

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]: ...

    async def delete_queue(self, name: str) -> bool:
        """Remove the queue with its messages, groups, dead letters and traces. False when there is none."""

    # the way in

    def push(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        """Store the messages in order, durably, all or none. The answers are in that order too, one or more per run.

        Queues and partitions are made as needed. An id that its partition holds already is answered as a duplicate. A
        store may answer a push to more than 8 queues in part: `failed` is not stored, `unknown` may be.
        """

    # the way out

    async def pop(self, request: PopRequest) -> Popped:
        """Claim messages. A new group that starts at a time (`new`, `from`) makes the queue that it names.

        Fewer than requested if their payloads are large (`bytes_max`): a consumer that requested too much must not
        take the server down, and then its messages' attempts. With `whole_leases` a lease that was lost comes again as
        one, as long as all pops of the group want that.
        """

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        """When a pop that found nothing may find what only waits for its time (a lease, a retry, a delay).

        None when there is no such thing. A hint: it may be earlier than needed.
        """

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]: ...

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        """Finish leases as a whole: what is held under one and not answered yet is completed, as if by an ack each.

        None for a lease that is not held: for it nothing changed.
        """

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        """Until when the lease now lasts (microseconds), for all its partitions; None when it is not held.

        A lease that was yielded by a failure is the holder's alone again.
        """

    async def release(self, lease_id: str, *, as_whole: bool = False) -> bool:
        """Undo a claim that did not reach its client: no attempt was counted, and all of it is available at once.

        What was answered meanwhile stays answered. With `as_whole` what is left stays together for the next pop with
        `whole_leases`. False when the lease is not held.
        """

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        """All of it or nothing. A duplicate push or a refused ack makes it nothing."""

    # groups

    async def groups(self, queue: str | None = None) -> list[GroupLag]: ...

    def times(self) -> StoreTimes:
        """How long its work took since it was made, as it is counted on."""

    def dropped(self) -> Mapping[str, int]:
        """Messages that this store has given up since it was opened and kept no dead letter of, by the kind of reason.

        As the queues' options say: `attempts`, `ttl`, `max_wait`.
        """

    async def figures(self) -> StoreFigures:
        """All queues and groups, as of one moment. For metrics and pages: it looks at every partition."""

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        """Set the group's cursors, on one partition or all; returns how many. Leases on them end."""

    async def preview_seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> SeekPreview:
        """What such a seek would skip and repeat at this moment. Nothing changes, and no group is made."""

    async def delete_group(self, group: str, queue: str | None) -> int:
        """Forget the group, on one queue or all; returns how many partitions knew it."""

    # dead letters

    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        """Newest first, and how many there are in all. A page ends with the letter that reaches `bytes_max`."""

    async def replay_dead_letters(self, wanted: DeadLetterFilter, *, to_all_groups: bool = False) -> int:
        """Push them again as new messages at the end of their partitions, and remove them from the dead letters.

        Each is for the group alone in which it died (`delivery.addressing`); for every group if `to_all_groups`.
        In pieces, the oldest first: if one is refused, those before it stay replayed. Letters that are written
        meanwhile are left alone, also those of replayed messages that died again.
        """

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int: ...

    # messages, for browsing

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        """At most `limit`; the message that reaches `bytes_max` is the last one, and there may be more behind it."""

    async def message(self, partition_id: str, transaction_id: str) -> Message | None: ...

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        """Remove one message: it is not delivered or shown any more, and a consumer that holds it cannot answer it.

        Its id is free again. Its traces and dead letters stay. False when it is not there.
        """

    async def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        """Turn a message into dead letters, one for each group that has not finished it, and delete it.

        Without any group, one for the default group. Returns how many; with 0 every group has finished the message,
        and it stays. None when it is not there.
        """

    async def clear_queue(self, name: str, partition: str | None = None) -> int:
        """Remove the messages that the queue, or one partition of it, holds now; returns how many.

        Options, groups and dead letters stay. In pieces: others go on meanwhile, and what they push stays.
        """

    # traces

    async def add_trace(self, event: TraceEvent) -> None: ...

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]: ...

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]: ...

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]: ...

    async def expire_traces(self, seconds: float) -> int:
        """Remove what was noted longer ago than this; returns how many events. Others go on meanwhile."""

    # flows: what their workers say of them, and what people want of them

    async def flows(self) -> list[FlowRow]:
        """All that a worker or a person has named, by name."""

    async def report_flow(
        self, name: str, worker: str, report: bytes, *, quiet_seconds: float, is_released: bool = False
    ) -> FlowRow:
        """Keep what a worker says of a flow, and return the flow as it is kept now.

        Where another worker has the flow, and was heard within `quiet_seconds`, nothing changes. With `is_released`
        any other worker may have the flow from now on.
        """

    async def pause_flow(self, name: str, is_paused: bool) -> FlowRow:
        """Note that the flow is to be paused, or that it was resumed once more."""

    async def forget_flow(self, name: str) -> bool:
        """False when there is none. A worker that still has it tells of it again."""

    # whose is it: for callers that may touch some queues only

    async def queues_of(
        self, *, partition_ids: Sequence[str] = (), lease_ids: Sequence[str] = (), stage_ids: Sequence[str] = ()
    ) -> set[str]:
        """The queues that these partitions, leases and stages are of. What is not there, or no more, has none."""

    # other rooms: `forebay.broker.room_work`

    async def together(self, begin: Callable[[], Work[T]], *, has_stages: bool = False) -> T:
        """Do a room's work in one transaction, durably; returns what it returns. What it raises undoes all of it.

        `has_stages`: it commits stages, which may take long.
        """

    async def look(self, begin: Callable[[], Work[T]]) -> T:
        """Do work that only asks, of one state of the store. It does not wait for work that changes something."""

    # the store as a whole

    async def flag(self, name: str) -> bool:
        """A switch that all servers on this store share, such as `maintenance.push`."""

    async def set_flag(self, name: str, is_set: bool) -> None: ...

    async def time_us(self) -> int:
        """The time by which the store judges how old things are."""

    async def apply_retention(self) -> int:
        """Remove what the queues' options no longer keep; returns how many messages."""

    async def expire_dead_letters(self, seconds: float) -> int:
        """Remove dead letters that died longer ago than this; returns how many. Others go on meanwhile."""

    async def expire_groups(self, seconds: float) -> int:
        """Forget groups that have not popped for this long and hold no lease; returns how many, by queue.

        One that comes back is a new group, also if it comes back in this moment.
        """

    async def expire_partitions(self, seconds: float) -> int:
        """Remove partitions that hold no message and got none for this long; returns how many.

        Where groups stand in them is forgotten too. One with dead letters, traces or lost messages stays, and so does
        one in which a group was set to a seq that is still to come. The next push makes the partition anew.
        """

    # Arrow: many messages at once, as columns (`forebay.broker.arrow`)

    async def bounds(self, queue: str, time_us: int | None = None, partitions: Sequence[str] = ()) -> QueueBounds:
        """What can be read of the queue now, where a time is in it, and what is gone of some partitions, or all."""

    async def hold(self, queue: str, reader: str, seq: int, seconds: float) -> bool:
        """Note where a reader stands that is no group: what is finished from that seq on is not removed for so long.

        It is forgotten after that, or with 0 seconds. Durable like an ack. Returns whether it was held until now.
        Messages that are too old go all the same, finished or not.
        """

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        """Messages as batches of `arrow.WIRE_SCHEMA`, in seq order; `RangeGone` where retention was faster.

        What is wrong with the request is raised here; the batches are read while the caller iterates.
        """

    async def stage(
        self,
        queue: str,
        stage_id: str,
        name: StageName,
        batches: Sequence[pa.RecordBatch],
        content: Content | None = None,
    ) -> Staged:
        """Keep messages (`arrow.STAGED_SCHEMA`) durably until they are committed. They are not visible before.

        `content`: of the rows as their producer gave them, where that is known; else it is that of `batches`.
        """

    async def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        """Turn the stages into messages, all at one moment, once for a producer's epoch, write and queue.

        `CommitDiffers` if that is committed with other rows, `StageUnknown` if a stage is not there: nothing is done.
        `wanted.queue` names the queue of a commit that may have no stages.
        """

    async def abort_stages(self, wanted: StagesOf, *, all_writes: bool = False) -> int:
        """Forget what was staged and not committed, of one queue or all; returns how many stages that were."""

    async def stage_figures(self) -> StageFigures: ...

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        """Remove stages, and forget commits, that are older than this; returns how many stages."""
