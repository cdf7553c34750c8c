"""`EmbeddedStore`: the coroutines that the broker calls. What they ask for is done by the store's thread."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import pyarrow as pa

from forebay.broker.arrow.staged_rows import check_sealed, size_of
from forebay.broker.bulk import CommitOutcome, QueueBounds, RangeRequest, Staged, StageFigures, StageName
from forebay.broker.messages import (
    ANSWER_BYTES_MAX,
    FAILED,
    UNKNOWN,
    Acknowledged,
    Acknowledgement,
    Completed,
    Message,
    Popped,
    PopRequest,
    Pushed,
    PushItem,
    TransactionOutcome,
)
from forebay.broker.overview import (
    DeadLetterFilter,
    DeadMessage,
    GroupLag,
    LostMessages,
    PartitionStatus,
    QueueStatus,
    SeekTarget,
    TraceEvent,
)
from forebay.broker.push_run import PushRun
from forebay.broker.store import Waker
from forebay.broker.stores.embedded.data_directory import DATABASE_FILE
from forebay.broker.stores.embedded.engine import Engine
from forebay.broker.stores.embedded.figures import Figures, partitions_behind
from forebay.broker.stores.embedded.popping import CUT_SHORT, PARTITIONS_LISTED_AT_ONCE_MAX
from forebay.broker.stores.embedded.pushing import Request
from forebay.broker.stores.embedded.reading import RangeReader, ReadableQueue
from forebay.broker.stores.embedded.retention_plan import Plan, Planner
from forebay.broker.stores.embedded.waiting_count import StillCounting
from forebay.broker.stores.embedded.work_line import WorkLine
from forebay.clock import Clock, SystemClock
from forebay.commitlog import LogOptions
from forebay.commitlog.filesystem import Filesystem, RealFilesystem
from forebay.errors import ForebayError, Permanent, StoreUnavailable, TooManyOpenFiles
from forebay.model.queue import Queue, QueueOptions

T = TypeVar("T")
_SECOND_US = 1_000_000

logger = logging.getLogger(__name__)

QUEUES_MADE_AT_ONCE_MAX = 8
"""By one request, in one cycle: each takes the disk some milliseconds."""
QUEUES_PUSHED_AT_ONCE_MAX = 64
"""By one request, in one cycle: each takes a sync of its own."""


class EmbeddedStore:
    def __init__(
        self,
        directory: Path | str,
        options: LogOptions | None = None,
        *,
        clock: Clock | None = None,
        filesystem: Filesystem | None = None,
    ) -> None:
        """`filesystem`: what the logs are written through; SQLite writes by itself."""
        self._directory = Path(directory)
        self._options = options or LogOptions()
        self._clock = clock or SystemClock()
        self._filesystem = filesystem or RealFilesystem()
        self._line: WorkLine | None = None
        self.recovered_messages = 0

    async def open(self, on_available: Waker) -> None:
        self._engine = await asyncio.to_thread(
            Engine, self._directory, self._options, self._clock, self._filesystem, on_available
        )
        self.recovered_messages = self._engine.recovered_messages
        self._line = WorkLine(self._engine.cycle, self._engine.close)

    async def close(self) -> None:
        if self._line is not None:
            await self._line.end()
            self._line = None

    async def is_healthy(self) -> bool:
        return self._line is not None and self._line.is_alive

    async def _call(self, call: Callable[[], T], *, synced: bool = False) -> T:
        while True:
            try:
                return await self._open_line().submit(call, synced=synced)  # type: ignore[no-any-return]
            except StillCounting:
                continue  # in another cycle, so that others get their turn

    def _open_line(self) -> WorkLine:
        if self._line is None:
            raise StoreUnavailable(f"{self._directory}: the store is closed")
        return self._line

    # --- queues ---

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        return await self._call(lambda: self._engine.queues.configure(queue, options, namespace, task), synced=True)

    async def queue(self, name: str) -> Queue | None:
        found = self._engine.queues.by_name.get(name)
        return found.info if found else None

    async def lost_messages(self) -> list[LostMessages]:
        return await self._call(self._engine.losses.all)

    async def queues(self, name: str | None = None) -> list[QueueStatus]:
        return await self._counted(name, Figures.queues)

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
        engine = self._engine
        return await self._call(lambda: engine.overview.partitions(engine.queues.existing(queue), limit, offset))

    async def delete_queue(self, name: str) -> bool:
        queue_id = await self._call(lambda: self._engine.overview.delete(name), synced=True)
        if queue_id is not None:
            await self._purge(queue_id)
        return queue_id is not None

    async def _purge(self, queue_id: int) -> None:
        """Remove what a deleted queue has left behind, in turns."""
        while not await self._call(partial(self._engine.purger.purge, queue_id)):
            pass

    # --- messages in and out ---

    def push(self, items: Sequence[PushItem]) -> Awaitable[Sequence[Pushed]]:
        if type(items) is PushRun:
            # Here, where the ids were made a moment ago. The store's thread is on another processor.
            items.id_block()
        if len(items) == 1 or type(items) is PushRun or len({item.queue for item in items}) == 1:
            queue = self._engine.queues.by_name.get(Request(items).queue) if items else None
            if queue is not None and queue.info.options.max_size:
                return self._push_to_limited(items)
            return self._open_line().submit(Request(items), synced=False)
        return self._push_to_several(items)

    async def _push_to_limited(self, items: Sequence[PushItem]) -> Sequence[Pushed]:
        while True:
            try:
                return await self._open_line().submit(Request(items), synced=False)  # type: ignore[no-any-return]
            except StillCounting:
                continue  # in another cycle, so that others get their turn

    async def _push_to_several(self, items: Sequence[PushItem]) -> Sequence[Pushed]:
        """As a whole, up to so many queues; what goes to more is stored in turns, and answered item by item."""
        queues = list(dict.fromkeys(item.queue for item in items))
        await self._make_queues(items)
        pushed: dict[int, Pushed] = {}
        for start in range(0, len(queues), QUEUES_PUSHED_AT_ONCE_MAX):
            chosen = set(queues[start : start + QUEUES_PUSHED_AT_ONCE_MAX])
            places = [place for place, item in enumerate(items) if item.queue in chosen]
            transact = self._engine.transactions.transact
            try:
                outcome = await self._call(
                    partial(transact, [items[place] for place in places], (), duplicates_abort=False), synced=True
                )
            except ForebayError as error:
                if not pushed:
                    raise
                is_unknown = isinstance(error, StoreUnavailable) and error.is_outcome_unknown
                failed = Pushed(UNKNOWN if is_unknown else FAILED, 0, "", str(error))
                pushed.update(dict.fromkeys(places, failed))
            else:
                pushed.update(zip(places, outcome.pushed, strict=True))
        return [pushed[place] for place in range(len(items))]

    async def _make_queues(self, items: Sequence[PushItem]) -> None:
        """Where many queues are to be made, make them first, in turns: each takes the disk some milliseconds."""
        known = self._engine.queues.by_name
        missing = list({item.queue: item for item in items if item.queue not in known}.values())
        if len(missing) <= QUEUES_MADE_AT_ONCE_MAX:
            return
        for start in range(0, len(missing), QUEUES_MADE_AT_ONCE_MAX):
            some = missing[start : start + QUEUES_MADE_AT_ONCE_MAX]
            await self._call(partial(self._engine.queues.make_all, some), synced=True)

    async def pop(self, request: PopRequest) -> Popped:
        if self._needs_lists(request):
            await self._make_lists(request)
        popped = CUT_SHORT
        while popped is CUT_SHORT:  # in another cycle, so that others get their turn
            popped = await self._call(lambda: self._engine.popper.pop(request), synced=self._makes_group(request))
        return popped

    def _needs_lists(self, request: PopRequest) -> bool:
        queues = self._engine.queues
        chosen = [queues.by_name.get(request.queue)] if request.queue else list(queues.by_id.values())
        for queue in chosen:
            if queue is not None and len(queue.partitions) > PARTITIONS_LISTED_AT_ONCE_MAX:
                group = queue.groups.get(request.group)
                if group is None or group.ready is None or not group.ready.is_whole:
                    return True
        return False

    async def _make_lists(self, request: PopRequest) -> None:
        """What takes long of a group's first pop since the start, beside the store's thread."""
        synced = self._makes_group(request)
        lists = await self._call(lambda: self._engine.popper.begin_lists(request), synced=synced)
        for each in lists:
            numbers = await asyncio.to_thread(partitions_behind, self._directory / DATABASE_FILE, each)
            await self._call(partial(self._engine.popper.end_list, each, numbers))

    def _makes_group(self, request: PopRequest) -> bool:
        """Whether the pop decides where a group begins: what is pushed after its answer must be the group's."""
        if request.subscription_mode == "all":
            return False
        queues = self._engine.queues
        chosen = [queues.by_name.get(request.queue)] if request.queue else list(queues.by_id.values())
        return any(queue is None or request.group not in queue.groups for queue in chosen)

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        return await self._call(lambda: self._engine.popper.seconds_until_due(request))

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        return await self._call(lambda: self._engine.answering.acknowledge(acknowledgements))

    async def complete(self, lease_ids: Sequence[str]) -> list[Completed | None]:
        return await self._call(lambda: [self._engine.answering.complete(lease_id) for lease_id in lease_ids])

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        return await self._call(lambda: self._engine.answering.extend(lease_id, seconds))

    async def release(self, lease_id: str) -> bool:
        return await self._call(lambda: self._engine.answering.release(lease_id))

    async def transact(
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        await self._make_queues(pushes)
        return await self._call(
            lambda: self._engine.transactions.transact(pushes, acknowledgements, duplicates_abort=True), synced=True
        )

    # --- groups and dead letters ---

    async def groups(self, queue: str | None = None) -> list[GroupLag]:
        return await self._counted(queue, Figures.groups)

    async def _counted(self, queue: str | None, count: Callable[[Figures], list[T]]) -> list[T]:
        """What is counted beside the store's thread, of one queue or of all."""
        queues = await self._call(lambda: self._engine.counted_queues(queue))

        def counted() -> list[T]:
            with Figures(self._directory / DATABASE_FILE, queues, self._clock.now_us()) as figures:
                return count(figures)

        return await asyncio.to_thread(counted) if queues else []

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        bounds = await self.bounds(queue, target.time_us)
        seq = bounds.next_seq if target.to_end else target.seq if target.seq is not None else bounds.seq_at_time
        total = 0
        after: int | None = 0
        while after is not None:
            moved, after = await self._call(
                partial(self._engine.seek, group, queue, partition, seq or 0, after), synced=True
            )
            total += moved
        return total

    async def delete_group(self, group: str, queue: str | None) -> int:
        return await self._call(lambda: self._engine.overview.delete_group(group, queue), synced=True)

    async def dead_letters(
        self, wanted: DeadLetterFilter, limit: int, offset: int, *, bytes_max: int = ANSWER_BYTES_MAX
    ) -> tuple[list[DeadMessage], int]:
        return await self._call(lambda: self._engine.letters.find(wanted, limit, offset, bytes_max))

    async def replay_dead_letters(self, wanted: DeadLetterFilter, *, to_all_groups: bool = False) -> int:
        replay = partial(self._engine.transactions.replay_dead_letters, wanted, to_all_groups)
        return await self._piece_by_piece(replay)

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        return await self._piece_by_piece(partial(self._engine.letters.purge, wanted))

    async def _piece_by_piece(self, step: Callable[[int, int], list[int]]) -> int:
        """Go through the dead letters that there are now, so that others get their turn; returns how many it did."""
        last_id = await self._call(self._engine.letters.last_id)
        total, after_id = 0, 0
        while done := await self._call(partial(step, after_id, last_id), synced=True):
            total, after_id = total + len(done), done[-1]
        return total

    # --- looking at messages ---

    async def read(
        self,
        queue: str,
        from_seq: int,
        limit: int,
        partition: str | None = None,
        *,
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> list[Message]:
        engine = self._engine
        return await self._call(
            lambda: engine.overview.read(engine.queues.existing(queue), from_seq, limit, partition, bytes_max)
        )

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        return await self._call(lambda: self._engine.overview.message(partition_id, transaction_id))

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        return await self._call(lambda: self._engine.delete_message(partition_id, transaction_id), synced=True)

    async def bury_message(self, partition_id: str, transaction_id: str, reason: str) -> int | None:
        return await self._call(lambda: self._engine.bury_message(partition_id, transaction_id, reason), synced=True)

    async def clear_queue(self, name: str, partition: str | None = None) -> int:
        place = await self._readable(name)
        plan = await asyncio.to_thread(self._planner().everything, place, partition)
        return await self._remove(place, plan)

    async def add_trace(self, event: TraceEvent) -> None:
        await self._call(lambda: self._engine.traces.add(event))

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return await self._call(lambda: self._engine.traces.of_message(partition_id, transaction_id))

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        return await self._call(lambda: self._engine.traces.named(name, limit, offset))

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        return await self._call(lambda: self._engine.traces.names(limit, offset))

    async def expire_traces(self, seconds: float) -> int:
        total = 0
        while removed := await self._call(lambda: self._engine.traces.expire(seconds)):
            total += removed
        return total

    # --- flags and retention ---

    async def flag(self, name: str) -> bool:
        statement = "SELECT is_set FROM flags WHERE name = ?"
        row = await self._call(lambda: self._engine.database.one(statement, (name,)))
        return bool(row and row[0])

    async def set_flag(self, name: str, is_set: bool) -> None:
        statement = "INSERT OR REPLACE INTO flags (name, is_set) VALUES (?, ?)"
        await self._call(lambda: self._engine.database.do(statement, (name, is_set)), synced=True)

    async def time_us(self) -> int:
        return self._clock.now_us()

    async def apply_retention(self) -> int:
        total = 0
        for queue_id in await self._call(self._engine.purger.waste):
            await self._purge(queue_id)
        await self._call(self._engine.expiring.note_activity)
        for name in await self._call(self._engine.retention.queues):
            try:
                total += await self._apply_retention(name)
            except (Permanent, TooManyOpenFiles) as error:
                # What is wrong with the log of one queue keeps no other from being cleared.
                logger.warning("retention passes a queue: %s", error, extra={"action": "store_retention_passed"})
        return total

    async def _apply_retention(self, name: str) -> int:
        queue = self._engine.queues.by_name.get(name)
        if queue is None:
            return 0
        place = await self._readable(name)
        while await self._call(partial(self._engine.retention.prune_tags, place.queue_id), synced=True):
            pass
        plan = await asyncio.to_thread(self._planner().expired, place, queue.info.options)
        return await self._remove(place, plan)

    async def expire_dead_letters(self, seconds: float) -> int:
        return await self.purge_dead_letters(DeadLetterFilter(to_us=self._before_us(seconds) - 1))

    async def expire_groups(self, seconds: float) -> int:
        total, before_us = 0, self._before_us(seconds)
        await self._call(self._engine.expiring.note_activity)
        for queue_id, name in await asyncio.to_thread(self._planner().idle_groups, before_us):
            forget = partial(self._engine.expiring.forget_group, queue_id, name, before_us)
            while (is_forgotten := await self._call(forget, synced=True)) is False:
                pass
            total += is_forgotten is True
        return total

    async def expire_partitions(self, seconds: float) -> int:
        total, before_us, expiring = 0, self._before_us(seconds), self._engine.expiring
        await self._call(lambda: None)  # what was pushed last is found in the database then
        found = await asyncio.to_thread(self._planner().empty_partitions, before_us)
        for queue_id, numbers in found.items():
            piece = expiring.partitions_at_once(queue_id)
            for start in range(0, len(numbers), piece):
                chosen = numbers[start : start + piece]
                total += await self._call(partial(expiring.remove_partitions, chosen, before_us), synced=True)
        for queue_id in await asyncio.to_thread(self._planner().with_removed_partitions):
            while await self._call(partial(expiring.prune_removed, queue_id)):
                pass
        return total

    def _before_us(self, seconds: float) -> int:
        return self._clock.now_us() - round(seconds * _SECOND_US)

    def _planner(self) -> Planner:
        return Planner(self._directory / DATABASE_FILE, self._clock.now_us())

    async def _remove(self, place: ReadableQueue, plan: Plan) -> int:
        """Remove what is planned, in turns; returns how many messages that were."""
        total, next_seq = 0, min([span.first_seq for span in plan.spans.values()], default=None)
        if next_seq is None:
            return 0
        while next_seq is not None:
            remove = partial(self._engine.retention.remove, plan, next_seq)
            removed, next_seq = await self._call(remove, synced=True)
            total += removed
        needed = await asyncio.to_thread(self._planner().first_needed, place)
        await self._call(partial(self._engine.retention.truncate, place.queue_id, needed))
        return total

    # --- Arrow ---

    async def bounds(self, queue: str, time_us: int | None = None) -> QueueBounds:
        place = await self._readable(queue)

        reader = await asyncio.to_thread(self._reader, place)
        try:
            return await asyncio.to_thread(reader.bounds, time_us)
        finally:
            await self._done_with(reader)

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        reader = await asyncio.to_thread(self._reader, await self._readable(wanted.queue))
        try:
            batches = await asyncio.to_thread(reader.batches, wanted)
        except BaseException:
            await self._done_with(reader)
            raise
        return self._in_thread(batches, reader)

    async def _in_thread(self, batches: Iterator[pa.RecordBatch], reader: RangeReader) -> AsyncIterator[pa.RecordBatch]:
        """Batches as they are asked for, each read in a thread."""
        try:
            while (batch := await asyncio.to_thread(next, batches, None)) is not None:
                yield batch
        finally:
            await self._done_with(reader)

    async def _done_with(self, reader: RangeReader) -> None:
        """Close it, and note what it could not read."""
        reader.close()
        if reader.damage and self._line is not None:
            await self._call(lambda: self._engine.note_damage(reader.queue.queue_id, reader.damage))

    async def _readable(self, queue: str) -> ReadableQueue:
        def look() -> ReadableQueue:
            found = self._engine.queues.existing(queue)
            return ReadableQueue(queue, found.queue_id, found.log, found.log.next_seq)

        return await self._call(look)

    def _reader(self, queue: ReadableQueue) -> RangeReader:
        return RangeReader(self._directory / DATABASE_FILE, queue)

    async def stage(self, queue: str, stage_id: str, name: StageName, batches: Sequence[pa.RecordBatch]) -> Staged:
        staged = Staged(stage_id, *size_of(batches))
        stages = self._engine.stages
        found = self._engine.queues.by_name.get(queue)
        if found is not None and found.info.options.encryption_enabled:
            check_sealed(queue, batches)
        await asyncio.to_thread(stages.write, stage_id, batches)
        try:
            return await self._call(lambda: stages.add(queue, name, staged), synced=True)
        except Exception as error:
            # Of a call that was cancelled, or whose commit was not confirmed, the stage may be there: its file stays.
            if not (isinstance(error, StoreUnavailable) and error.is_outcome_unknown):
                stages.discard(stage_id)
            raise

    async def commit_stages(self, producer: str, epoch: str, stage_ids: Sequence[str]) -> CommitOutcome:
        return await self._call(
            lambda: self._engine.transactions.commit_stages(producer, epoch, stage_ids), synced=True
        )

    async def abort_stages(self, producer: str, epoch: str) -> int:
        return await self._call(lambda: self._engine.stages.forget(producer, epoch), synced=True)

    async def stage_figures(self) -> StageFigures:
        return await self._call(self._engine.stages.figures)

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        return await self._call(lambda: self._engine.stages.expire(stage_seconds, commit_seconds), synced=True)
