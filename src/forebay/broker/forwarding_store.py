"""A store in front of another one: each call goes on to that as it came.

For wrappers, which override what they change. Written out and not forwarded by name, so that a call that is new in the
protocol is not passed on unseen: `Store` is its base, and mypy tells what is missing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar

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
from forebay.broker.store import Store, Waker
from forebay.model.push_run import PushRun
from forebay.model.queue import Queue, QueueOptions

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class ForwardingStore(Store):
    """Everything goes to the store behind it."""

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    async def open(self, on_available: Waker) -> None:
        await self._inner.open(on_available)

    async def close(self) -> None:
        await self._inner.close()

    async def is_healthy(self) -> bool:
        return await self._inner.is_healthy()

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        return await self._inner.configure(queue, options, namespace, task)

    async def queue(self, name: str) -> Queue | None:
        return await self._inner.queue(name)

    async def queues(self, name: str | None = None) -> list[QueueStatus]:
        return await self._inner.queues(name)

    async def lost_messages(self) -> list[LostMessages]:
        return await self._inner.lost_messages()

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
        return await self._inner.partitions(queue, limit, offset)

    async def delete_queue(self, name: str) -> bool:
        return await self._inner.delete_queue(name)

    def push(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        return self._inner.push(runs)

    async def pop(self, request: PopRequest) -> Popped:
        return await self._inner.pop(request)

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        return await self._inner.seconds_until_due(request)

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        return await self._inner.acknowledge(acknowledgements)

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        return await self._inner.complete(lease_ids)

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        return await self._inner.extend(lease_id, seconds)

    async def release(self, lease_id: str, *, as_whole: bool = False) -> bool:
        return await self._inner.release(lease_id, as_whole=as_whole)

    async def transact(
        self, pushes: Sequence[PushRun], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        return await self._inner.transact(pushes, acknowledgements)

    async def groups(self, queue: str | None = None) -> list[GroupLag]:
        return await self._inner.groups(queue)

    def times(self) -> StoreTimes:
        return self._inner.times()

    def dropped(self) -> Mapping[str, int]:
        return self._inner.dropped()

    async def figures(self) -> StoreFigures:
        return await self._inner.figures()

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        return await self._inner.seek(group, queue, partition, target)

    async def preview_seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> SeekPreview:
        return await self._inner.preview_seek(group, queue, partition, target)

    async def delete_group(self, group: str, queue: str | None) -> int:
        return await self._inner.delete_group(group, queue)

    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        return await self._inner.dead_letters(wanted, limit, offset, bytes_max=bytes_max)

    async def replay_dead_letters(self, wanted: DeadLetterFilter, *, to_all_groups: bool = False) -> int:
        return await self._inner.replay_dead_letters(wanted, to_all_groups=to_all_groups)

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        return await self._inner.purge_dead_letters(wanted)

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        return await self._inner.read(queue, from_seq, limit, partition, bytes_max=bytes_max)

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        return await self._inner.message(partition_id, transaction_id)

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        return await self._inner.delete_message(partition_id, transaction_id)

    async def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        return await self._inner.bury_message(partition_id, transaction_id, reason)

    async def clear_queue(self, name: str, partition: str | None = None) -> int:
        return await self._inner.clear_queue(name, partition)

    async def add_trace(self, event: TraceEvent) -> None:
        await self._inner.add_trace(event)

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return await self._inner.traces(partition_id, transaction_id)

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        return await self._inner.traces_named(name, limit, offset)

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        return await self._inner.trace_names(limit, offset)

    async def expire_traces(self, seconds: float) -> int:
        return await self._inner.expire_traces(seconds)

    async def flows(self) -> list[FlowRow]:
        return await self._inner.flows()

    async def report_flow(
        self, name: str, worker: str, report: bytes, *, quiet_seconds: float, is_released: bool = False
    ) -> FlowRow:
        return await self._inner.report_flow(name, worker, report, quiet_seconds=quiet_seconds, is_released=is_released)

    async def pause_flow(self, name: str, is_paused: bool) -> FlowRow:
        return await self._inner.pause_flow(name, is_paused)

    async def forget_flow(self, name: str) -> bool:
        return await self._inner.forget_flow(name)

    async def queues_of(
        self, *, partition_ids: Sequence[str] = (), lease_ids: Sequence[str] = (), stage_ids: Sequence[str] = ()
    ) -> set[str]:
        return await self._inner.queues_of(partition_ids=partition_ids, lease_ids=lease_ids, stage_ids=stage_ids)

    async def together(self, begin: Callable[[], Work[T]], *, has_stages: bool = False) -> T:
        return await self._inner.together(begin, has_stages=has_stages)

    async def look(self, begin: Callable[[], Work[T]]) -> T:
        return await self._inner.look(begin)

    async def flag(self, name: str) -> bool:
        return await self._inner.flag(name)

    async def set_flag(self, name: str, is_set: bool) -> None:
        await self._inner.set_flag(name, is_set)

    async def time_us(self) -> int:
        return await self._inner.time_us()

    async def apply_retention(self) -> int:
        return await self._inner.apply_retention()

    async def expire_dead_letters(self, seconds: float) -> int:
        return await self._inner.expire_dead_letters(seconds)

    async def expire_groups(self, seconds: float) -> int:
        return await self._inner.expire_groups(seconds)

    async def expire_partitions(self, seconds: float) -> int:
        return await self._inner.expire_partitions(seconds)

    async def bounds(self, queue: str, time_us: int | None = None, partitions: Sequence[str] = ()) -> QueueBounds:
        return await self._inner.bounds(queue, time_us, partitions)

    async def hold(self, queue: str, reader: str, seq: int, seconds: float) -> bool:
        return await self._inner.hold(queue, reader, seq, seconds)

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        return await self._inner.read_batches(wanted)

    async def stage(
        self,
        queue: str,
        stage_id: str,
        name: StageName,
        batches: Sequence[pa.RecordBatch],
        content: Content | None = None,
    ) -> Staged:
        return await self._inner.stage(queue, stage_id, name, batches, content)

    async def commit_stages(self, wanted: StagesOf, stage_ids: Sequence[str]) -> CommitOutcome:
        return await self._inner.commit_stages(wanted, stage_ids)

    async def abort_stages(self, wanted: StagesOf, *, all_writes: bool = False) -> int:
        return await self._inner.abort_stages(wanted, all_writes=all_writes)

    async def stage_figures(self) -> StageFigures:
        return await self._inner.stage_figures()

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        return await self._inner.expire_stages(stage_seconds, commit_seconds)
