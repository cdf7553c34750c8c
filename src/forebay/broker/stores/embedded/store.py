"""`EmbeddedStore`: the coroutines that the broker calls, and the thread that does their work in cycles."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sqlite3
import threading
import uuid
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, TypeVar

import pyarrow as pa

from forebay.broker.arrow.incoming import check_sealed, size_of
from forebay.broker.store import (
    Acknowledged,
    Acknowledgement,
    CommitOutcome,
    Completed,
    DeadLetterFilter,
    DeadMessage,
    GroupLag,
    Message,
    PartitionStatus,
    Popped,
    PopRequest,
    Pushed,
    PushItem,
    QueueBounds,
    QueueStatus,
    RangeRequest,
    SeekTarget,
    Staged,
    StageFigures,
    StageName,
    TraceEvent,
    TransactionOutcome,
    Waker,
)
from forebay.broker.stores.embedded.answering import Answering
from forebay.broker.stores.embedded.committing import StageCommitter, told
from forebay.broker.stores.embedded.database import Database
from forebay.broker.stores.embedded.index import MessageIndex
from forebay.broker.stores.embedded.letters import DeadLetters
from forebay.broker.stores.embedded.overview import Overview
from forebay.broker.stores.embedded.popping import Popper
from forebay.broker.stores.embedded.pushing import DuplicateInTransaction, Pusher, Request
from forebay.broker.stores.embedded.queues import OpenQueue, Queues
from forebay.broker.stores.embedded.reading import RangeReader, ReadableQueue
from forebay.broker.stores.embedded.records import RecordCache
from forebay.broker.stores.embedded.retention import Retention
from forebay.broker.stores.embedded.staging import Stages
from forebay.broker.stores.embedded.traces import Traces
from forebay.clock import Clock, SystemClock
from forebay.commitlog import LogOptions
from forebay.commitlog.filesystem import Filesystem, Lock, RealFilesystem
from forebay.commitlog.log import not_accessible, take_lock
from forebay.errors import ForebayError, StoreUnavailable
from forebay.model.queue import Queue, QueueOptions

logger = logging.getLogger(__name__)
DATABASE_FILE = "store.sqlite"
LARGE_PUSH_ITEMS = 32
"""A push of so many messages is worth a cycle of its own."""
T = TypeVar("T")


class _Aborted(Exception):
    """A transaction that is to leave nothing behind; the message is its error."""


@dataclass(slots=True)
class _Work:
    """Something for the store's thread to do, and who waits for it."""

    call: Callable[[], Any] | Request
    future: asyncio.Future[Any]
    synced: bool = False
    result: Any = None
    error: BaseException | None = None


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
        self._work: SimpleQueue[None] = SimpleQueue()
        """One entry for each time that somebody has put something into `_waiting`, or wants the thread to end."""
        self._waiting: deque[_Work] = deque()
        self._telling: asyncio.AbstractEventLoop | None = None
        """The event loop that will tell the thread of what waits."""
        self._is_ending = False
        self._thread: threading.Thread | None = None
        self._wake: Waker = lambda queue, count: None
        self._stored: Counter[str] = Counter()
        self._to_remove: list[OpenQueue] = []
        self._is_index_behind = False
        self.recovered_messages = 0

    async def open(self, on_available: Waker) -> None:
        self._wake = on_available
        await asyncio.to_thread(self._open)
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="forebay-store", daemon=True)
        self._thread.start()

    def _open(self) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
            self._lock: Lock = take_lock(self._filesystem, self._directory)
            (self._directory / "queues").mkdir(exist_ok=True)
            self._database = Database(self._directory / DATABASE_FILE)
        except OSError as error:
            raise not_accessible(self._directory, error) from error
        self._queues = Queues(self._database, self._directory, self._options, self._clock, self._filesystem)
        self._cache = RecordCache()
        self._index = MessageIndex(self._database, self._queues, self._cache)
        self._letters = DeadLetters(self._database, self._queues, self._clock)
        self._popper = Popper(self._database, self._queues, self._index, self._letters, self._clock)
        self._answering = Answering(self._database, self._queues, self._popper, self._clock)
        shared = (self._database, self._queues, self._index, self._popper, self._clock)
        self._overview = Overview(*shared)
        self._retention = Retention(*shared)
        self._pusher = Pusher(self._queues, self._index, self._clock, self._overview.waiting)
        self._traces = Traces(self._database, self._queues)
        self._stages = Stages(self._directory, self._database, self._clock)
        self._committer = StageCommitter(
            self._database, self._queues, self._index, self._stages, self._clock, self._overview.waiting
        )
        self._stages.sweep()
        self._queues.load()
        with self._database.transaction(synced=False):
            self.recovered_messages = self._index.catch_up()

    async def close(self) -> None:
        if self._thread is None:
            return
        self._is_ending = True
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)
        self._thread = None

    def _close(self) -> None:
        with self._database.transaction(synced=True):
            for queue in self._queues.by_id.values():
                self._database.many(
                    "UPDATE groups SET last_active_us = max(last_active_us, ?) WHERE id = ?",
                    [(group.last_active_us, group.group_id) for group in queue.groups.values()],
                )
        self._queues.close()
        self._database.close()
        self._lock.release()

    # --- the store's thread ---

    def _run(self) -> None:
        while True:
            self._work.get()
            is_ending = self._is_ending
            work = [self._waiting.popleft() for _ in range(len(self._waiting))]
            if work:
                self._cycle(work)
            if is_ending:
                break
        self._close()

    def _cycle(self, work: Sequence[_Work]) -> None:
        """Do all of it in one transaction, and answer when that is committed."""
        self._stored = Counter()
        self._to_remove = []
        try:
            with self._database.transaction(synced=any(item.synced or self._makes_queue(item.call) for item in work)):
                if self._is_index_behind:
                    self._index.catch_up()
                    self._is_index_behind = False
                pushes = [item.call for item in work if isinstance(item.call, Request)]
                if pushes:
                    self._stored += self._pusher.push(pushes)
                for item in work:
                    self._do(item)
        except BaseException as error:
            logger.exception("a cycle of the store failed", extra={"action": "store_cycle_failed"})
            for item in work:
                item.error = _as_refusal(error, is_outcome_unknown=isinstance(item.call, Request))
            # What was appended stays in the logs, so it is part of the queues, although nobody was told so.
            self._is_index_behind = True
            self._queues.reload()
            self._cache.forget()
            self._stages.spare_files()
        else:
            self._remove_logs()
            self._stages.remove_files()
            for queue, count in self._stored.items():
                if count:
                    self._wake(queue, count)
            for queue in self._answering.freed:
                self._wake(queue, 1)
        self._answering.freed.clear()
        _answer(work)

    def _makes_queue(self, call: Callable[[], Any] | Request) -> bool:
        """A queue that a push makes must survive what the push survives."""
        return isinstance(call, Request) and call.items[0].queue not in self._queues.by_name

    def _do(self, item: _Work) -> None:
        if isinstance(item.call, Request):
            item.result, item.error = item.call.answers, item.call.error
            return
        try:
            item.result = item.call()
        except ForebayError as error:
            item.error = error

    def _remove_logs(self) -> None:
        """Only now that their queues are gone from the database for good."""
        for queue in self._to_remove:
            queue.log.close()
            shutil.rmtree(queue.log.base, ignore_errors=True)
            self._cache.forget([queue.queue_id])

    async def _call(self, call: Callable[[], T], *, synced: bool = False) -> T:
        return await self._submit(call, synced=synced)  # type: ignore[no-any-return]

    def _submit(self, call: Callable[[], Any] | Request, *, synced: bool = False) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._thread is None:
            raise StoreUnavailable(f"{self._directory}: the store is closed")
        self._waiting.append(_Work(call, future, synced))
        loop = future.get_loop()
        if isinstance(call, Request) and len(call.items) >= LARGE_PUSH_ITEMS:
            # At once: the thread writes it while the loop reads the next one. Else all producers would wait for the
            # disk together, and then the disk for all of them.
            self._work.put(None)
        elif self._telling is not loop:
            # Told when the event loop has run everything that is ready now, so that requests which came together are
            # committed together, and the thread does not compete with the loop for the interpreter meanwhile.
            self._telling = loop
            loop.call_soon(self._tell)
        return future

    def _tell(self) -> None:
        self._telling = None
        self._work.put(None)

    # --- the protocol ---

    async def is_healthy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    async def configure(self, queue: str, options: QueueOptions, namespace: str, task: str) -> Queue:
        return await self._call(lambda: self._queues.configure(queue, options, namespace, task), synced=True)

    async def queue(self, name: str) -> Queue | None:
        found = self._queues.by_name.get(name)
        return found.info if found else None

    async def queues(self) -> list[QueueStatus]:
        return await self._call(self._overview.queues)

    async def partitions(self, queue: str, limit: int, offset: int) -> list[PartitionStatus]:
        return await self._call(lambda: self._overview.partitions(self._queues.existing(queue), limit, offset))

    async def delete_queue(self, name: str) -> bool:
        def delete() -> bool:
            queue = self._overview.delete(name)
            if queue is not None:
                self._to_remove.append(queue)
            return queue is not None

        return await self._call(delete, synced=True)

    async def push(self, items: Sequence[PushItem]) -> list[Pushed]:
        if not items:
            return []
        if len({item.queue for item in items}) == 1:
            return await self._submit(Request(items))  # type: ignore[no-any-return]
        outcome = await self._call(lambda: self._transact(items, (), duplicates_abort=False), synced=True)
        return outcome.pushed

    async def pop(self, request: PopRequest) -> Popped:
        makes_queue = request.subscription_mode != "all" and request.queue not in self._queues.by_name
        return await self._call(lambda: self._popper.pop(request), synced=makes_queue)

    async def seconds_until_due(self, request: PopRequest) -> float | None:
        return await self._call(lambda: self._popper.seconds_until_due(request))

    async def acknowledge(self, acknowledgements: Sequence[Acknowledgement]) -> list[Acknowledged]:
        return await self._call(lambda: self._answering.acknowledge(acknowledgements))

    async def complete(self, lease_id: str) -> Completed | None:
        return await self._call(lambda: self._answering.complete(lease_id))

    async def extend(self, lease_id: str, seconds: int) -> int | None:
        return await self._call(lambda: self._answering.extend(lease_id, seconds))

    async def release(self, lease_id: str) -> bool:
        return await self._call(lambda: self._answering.release(lease_id))

    async def transact(
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement]
    ) -> TransactionOutcome:
        return await self._call(lambda: self._transact(pushes, acknowledgements, duplicates_abort=True), synced=True)

    def _transact(
        self, pushes: Sequence[PushItem], acknowledgements: Sequence[Acknowledgement], *, duplicates_abort: bool
    ) -> TransactionOutcome:
        tag = uuid.uuid4().bytes
        try:
            with self._database.savepoint():
                acknowledged = self._answering.acknowledge(acknowledgements)
                _check_accepted(acknowledged)
                self._database.do("INSERT INTO committed_tags (tag) VALUES (?)", (tag,))
                if duplicates_abort:
                    self._pusher.refuse_duplicates(pushes)
                pushed = self._pusher.push_tagged(pushes, tag)
        except (_Aborted, DuplicateInTransaction, ForebayError) as error:
            # Memory may be ahead of the database now: ready lists moved on, partitions were named.
            self._queues.reload()
            if isinstance(error, ForebayError):
                raise
            return TransactionOutcome([], [], str(error))
        fresh = Counter(i.queue for i, p in zip(pushes, pushed, strict=True) if p.status == "queued")
        self._stored += fresh
        return TransactionOutcome(pushed, acknowledged)

    async def groups(self) -> list[GroupLag]:
        return await self._call(self._overview.groups)

    async def seek(self, group: str, queue: str, partition: str | None, target: SeekTarget) -> int:
        def move() -> int:
            moved = self._overview.seek(group, self._queues.existing(queue), partition, target)
            self._answering.freed.add(queue)
            return moved

        return await self._call(move, synced=True)

    async def delete_group(self, group: str, queue: str | None) -> int:
        return await self._call(lambda: self._overview.delete_group(group, queue), synced=True)

    async def dead_letters(self, wanted: DeadLetterFilter, limit: int, offset: int) -> tuple[list[DeadMessage], int]:
        return await self._call(lambda: self._letters.find(wanted, limit, offset))

    async def replay_dead_letters(self, wanted: DeadLetterFilter) -> int:
        def replay() -> int:
            items = self._letters.as_items(wanted)
            if items:
                self._transact(items, (), duplicates_abort=False)
            return self._letters.purge(wanted)

        return await self._call(replay, synced=True)

    async def purge_dead_letters(self, wanted: DeadLetterFilter) -> int:
        return await self._call(lambda: self._letters.purge(wanted), synced=True)

    async def read(self, queue: str, from_seq: int, limit: int, partition: str | None = None) -> list[Message]:
        return await self._call(lambda: self._overview.read(self._queues.existing(queue), from_seq, limit, partition))

    async def message(self, partition_id: str, transaction_id: str) -> Message | None:
        return await self._call(lambda: self._overview.message(partition_id, transaction_id))

    async def delete_message(self, partition_id: str, transaction_id: str) -> bool:
        def delete() -> bool:
            found = self._overview.delete_message(partition_id, transaction_id)
            if found is not None:
                self._answering.forget_deleted(*found)
            return found is not None

        return await self._call(delete, synced=True)

    async def add_trace(self, event: TraceEvent) -> None:
        await self._call(lambda: self._traces.add(event))

    async def traces(self, partition_id: str, transaction_id: str) -> list[TraceEvent]:
        return await self._call(lambda: self._traces.of_message(partition_id, transaction_id))

    async def traces_named(self, name: str, limit: int, offset: int) -> tuple[list[TraceEvent], int]:
        return await self._call(lambda: self._traces.named(name, limit, offset))

    async def trace_names(self, limit: int, offset: int) -> tuple[list[tuple[str, int]], int]:
        return await self._call(lambda: self._traces.names(limit, offset))

    async def flag(self, name: str) -> bool:
        def find() -> bool:
            row = self._database.one("SELECT is_set FROM flags WHERE name = ?", (name,))
            return bool(row and row[0])

        return await self._call(find)

    async def set_flag(self, name: str, is_set: bool) -> None:
        statement = "INSERT OR REPLACE INTO flags (name, is_set) VALUES (?, ?)"
        await self._call(lambda: self._database.do(statement, (name, is_set)), synced=True)

    async def apply_retention(self) -> int:
        return await self._call(self._retention.apply)

    # --- Arrow ---

    async def bounds(self, queue: str, time_us: int | None = None) -> QueueBounds:
        place = await self._readable(queue)

        def find() -> QueueBounds:
            with self._reader(place) as reader:
                return reader.bounds(time_us)

        return await asyncio.to_thread(find)

    async def read_batches(self, wanted: RangeRequest) -> AsyncIterator[pa.RecordBatch]:
        reader = await asyncio.to_thread(self._reader, await self._readable(wanted.queue))
        try:
            batches = await asyncio.to_thread(reader.batches, wanted)
        except BaseException:
            reader.close()
            raise
        return _in_thread(batches, reader)

    async def _readable(self, queue: str) -> ReadableQueue:
        def look() -> ReadableQueue:
            found = self._queues.existing(queue)
            return ReadableQueue(queue, found.queue_id, found.log, found.log.next_seq)

        return await self._call(look)

    def _reader(self, queue: ReadableQueue) -> RangeReader:
        return RangeReader(self._directory / DATABASE_FILE, queue)

    async def stage(self, queue: str, stage_id: str, name: StageName, batches: Sequence[pa.RecordBatch]) -> Staged:
        staged = Staged(stage_id, *size_of(batches))
        found = self._queues.by_name.get(queue)
        if found is not None and found.info.options.encryption_enabled:
            check_sealed(queue, batches)
        await asyncio.to_thread(self._stages.write, stage_id, batches)
        try:
            return await self._call(lambda: self._stages.add(queue, name, staged), synced=True)
        except Exception:
            # Nothing was added. Of a call that was cancelled nobody knows, and its file stays.
            self._stages.discard(stage_id)
            raise

    async def commit_stages(self, producer: str, epoch: str, stage_ids: Sequence[str]) -> CommitOutcome:
        return await self._call(lambda: self._commit_stages(producer, epoch, stage_ids), synced=True)

    def _commit_stages(self, producer: str, epoch: str, stage_ids: Sequence[str]) -> CommitOutcome:
        earlier = self._committer.earlier(producer, epoch)
        if earlier is not None:
            return earlier
        try:
            with self._database.savepoint():
                outcome = self._committer.commit(producer, epoch, stage_ids, uuid.uuid4().bytes)
        except ForebayError:
            self._queues.reload()
            self._stages.spare_files()
            raise
        self._stored += told(outcome)
        return outcome

    async def abort_stages(self, producer: str, epoch: str) -> int:
        return await self._call(lambda: self._stages.forget(producer, epoch), synced=True)

    async def stage_figures(self) -> StageFigures:
        return await self._call(self._stages.figures)

    async def expire_stages(self, stage_seconds: float, commit_seconds: float) -> int:
        return await self._call(lambda: self._stages.expire(stage_seconds, commit_seconds), synced=True)


async def _in_thread(batches: Iterator[pa.RecordBatch], reader: RangeReader) -> AsyncIterator[pa.RecordBatch]:
    """Batches as they are asked for, each read in a thread."""
    try:
        while (batch := await asyncio.to_thread(next, batches, None)) is not None:
            yield batch
    finally:
        reader.close()


def _check_accepted(acknowledged: Sequence[Acknowledged]) -> None:
    for found in acknowledged:
        if not found.answered.is_accepted:
            raise _Aborted(found.answered.error)


def _as_refusal(error: BaseException, *, is_outcome_unknown: bool) -> BaseException:
    if isinstance(error, sqlite3.OperationalError | OSError):
        return StoreUnavailable(f"the store cannot write: {error}", is_outcome_unknown=is_outcome_unknown)
    return error


def _answer(work: Sequence[_Work]) -> None:
    """Resolve the futures of each event loop with one call."""
    loops: dict[asyncio.AbstractEventLoop, list[_Work]] = {}
    for item in work:
        loops.setdefault(item.future.get_loop(), []).append(item)
    for loop, items in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, items)
        except RuntimeError:
            logger.debug("nobody waits any more: the event loop is closed")


def _resolve(items: Sequence[_Work]) -> None:
    for item in items:
        if item.future.done():
            continue
        if item.error is not None:
            item.future.set_exception(item.error)
        else:
            item.future.set_result(item.result)
