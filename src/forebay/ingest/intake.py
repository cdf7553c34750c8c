"""The way in: direct, failover or QoS 0. See the package's essay for what it promises."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from forebay.broker.encryption import Cipher
from forebay.broker.messages import FAILED, UNKNOWN, Pushed
from forebay.broker.numbering import by_run
from forebay.broker.store import Store, Waker
from forebay.clock import Clock
from forebay.errors import AppendFailed, BufferExhausted, ForebayError, StoreUnavailable
from forebay.filesystem import Filesystem
from forebay.ingest.backlog import PartitionKey
from forebay.ingest.buffer_file import BufferFile
from forebay.ingest.buffer_writes import BufferFull, BufferKind
from forebay.ingest.drain_loop import DrainLoop
from forebay.ingest.event import frames_of
from forebay.ingest.figures import BufferFigures, BufferRecount
from forebay.ingest.inspection import view_of
from forebay.ingest.limits import BufferLimits
from forebay.ingest.quota import BufferQuota
from forebay.ingest.recovery import Recovery
from forebay.ingest.time_limit import TimeLimit
from forebay.model.push_run import PushRun, by_partition, message_count, places_of

FENCE_LOOK_SECONDS = 0.01


class Intake:
    """All pushes of a server go through it."""

    def __init__(
        self,
        store: Store,
        filesystem: Filesystem,
        directory: Path,
        clock: Clock,
        *,
        limits: BufferLimits | None = None,
        cipher: Cipher | None = None,
        is_remote: bool = False,
        on_stored: Callable[[Sequence[PushRun]], None] = lambda runs: None,
    ) -> None:
        """`is_remote`: the store may hang, and other processes may share it together with this directory."""
        self.limits = limits or BufferLimits()
        self.drain_loop = DrainLoop(store, filesystem, directory, clock, self.limits, cipher, on_stored)
        self._store = store
        self._clock = clock
        self._cipher = cipher
        self._is_remote = is_remote
        self._failover = self.drain_loop.failover
        self._patience = TimeLimit(self.limits.store_seconds, self._unanswered)
        self._room = BufferQuota(self.drain_loop, self.limits)
        self._no_wait_until = 0.0
        self._has_just_looked = False
        """Whether it is known that no other process has buffered anything that the requests here have to wait for."""

    async def start(self, on_available: Waker) -> None:
        await self.drain_loop.start(on_available)

    async def stop(self) -> None:
        await self.drain_loop.stop()

    def pause(self, is_paused: bool) -> None:
        """Push maintenance: everything is buffered, and nothing is drained."""
        self.drain_loop.is_paused = is_paused

    @property
    def is_store_open(self) -> bool:
        """Whether the store was reached since the start."""
        return self.drain_loop.is_store_open

    @property
    def recovery(self) -> Recovery:
        return self.drain_loop.recovery

    @property
    def is_db_healthy(self) -> bool:
        return self.drain_loop.health.is_healthy

    async def figures(self) -> BufferFigures:
        return await self.drain_loop.figures()

    async def recount(self) -> BufferRecount:
        """Read all buffer files, and compare. Takes as long as reading them does."""
        before = self.drain_loop.counted()
        view = await asyncio.to_thread(view_of, self.drain_loop.directory.base, lambda size: None)
        counted: Counter[str] = Counter()
        for file in view.files:
            counted.update(file.queues)
        is_exact = self.drain_loop.failover.is_owner and self.drain_loop.counted() == before
        return BufferRecount(before.queues, dict(counted), is_exact)

    # pushing

    async def push(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        """Store the messages, or buffer them durably."""
        if self.drain_loop.is_paused:
            return await self._buffer(runs)
        if not self.drain_loop.health.is_healthy:
            return await self._buffer_or_insist(runs)
        if self._failover.backlog.events or (self._is_remote and self._are_there_strange_events()):
            return await self._push_around_fences(runs)
        return await self._push_directly(runs)

    def _are_there_strange_events(self) -> bool:
        """A look at the files takes as long as the rest of a push, so one does for all that were there before it."""
        if not self._has_just_looked:
            if self._failover.has_strange_events():
                return True
            self._has_just_looked = True
            # A push that comes later runs later than this, and looks again.
            asyncio.get_running_loop().call_soon(self._forget_look)
        return False

    def _forget_look(self) -> None:
        self._has_just_looked = False

    async def _push_around_fences(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        if await self._are_free(places_of(runs)):
            return await self._push_directly(runs)
        runs = by_partition(runs)
        is_all_held = self._is_remote and self._failover.has_strange_events()
        holds = self._failover.backlog.holds
        held = [n for n, run in enumerate(runs) if is_all_held or holds((run.queue, run.partitions[0]))]
        free = sorted(set(range(len(runs))).difference(held))
        pushed: dict[int, list[Pushed]] = {}
        # What has to wait goes first: its turn must not pass while the rest is being stored.
        for places, way in ((held, self._buffer), (free, self._push_directly)):
            if not places:
                continue
            own = [runs[n] for n in places]
            try:
                pushed.update(zip(places, by_run(own, await way(own)), strict=True))
            except ForebayError as error:
                if not pushed:
                    raise
                # A part of the request is accepted, so it is answered run by run.
                status = UNKNOWN if _may_be_stored(error) else FAILED
                pushed.update((n, [Pushed(status, 0, "", str(error), len(runs[n]))]) for n in places)
        return [answer for n in range(len(runs)) for answer in pushed[n]]

    async def _push_directly(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        try:
            return await self._attempt(runs)
        except AppendFailed as error:
            return await self._buffer_or_raise(runs, error)
        except StoreUnavailable as error:
            trouble = error
        self.drain_loop.note_failure(str(trouble))
        try:
            return await self._buffer(runs)
        except (BufferExhausted, StoreUnavailable) as refusal:
            raise _truth_of(refusal, trouble) from None

    def _attempt(self, runs: Sequence[PushRun]) -> Awaitable[Sequence[Pushed]]:
        return self._patience.hold(self._store.push(runs)) if self._is_remote else self._store.push(runs)

    def _unanswered(self) -> StoreUnavailable:
        return StoreUnavailable(f"no answer within {self.limits.store_seconds:g} s", is_outcome_unknown=True)

    async def _buffer_or_insist(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        """The store was away a moment ago. If the buffer takes no more, it is tried all the same."""
        try:
            return await self._buffer(runs)
        except (BufferExhausted, StoreUnavailable) as refusal:
            if _may_be_stored(refusal) or self._is_any_fenced(places_of(runs)):
                raise
            try:
                return await self._attempt(runs)
            except StoreUnavailable as trouble:
                raise _truth_of(refusal, trouble) from None

    async def _buffer_or_raise(self, runs: Sequence[PushRun], error: AppendFailed) -> Sequence[Pushed]:
        """The embedded store's disk refuses. If the buffer's does too, the store's reason is the better answer."""
        try:
            pushed = await self._buffer(runs)
        except (BufferExhausted, StoreUnavailable) as refusal:
            if _may_be_stored(refusal):
                raise
            raise error from None
        self.drain_loop.note_failure(str(error))
        return pushed

    async def _buffer(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        await self._append(self._failover, runs)
        self.drain_loop.poke()
        return _buffered(runs, "buffer")

    async def push_qos0(
        self, runs: Sequence[PushRun], buffer_ms: int | None, buffer_max: int | None
    ) -> Sequence[Pushed]:
        """Give the messages to the operating system, and store them together with others a moment later."""
        await self._append(self.drain_loop.qos0, runs)
        if self.drain_loop.schedule.note(message_count(runs), buffer_ms, buffer_max, time.monotonic()):
            self.drain_loop.poke()
        return _buffered(runs, "os")

    async def _append(self, file: BufferFile, runs: Sequence[PushRun]) -> None:
        is_failover = file is self._failover
        frames = frames_of(runs, is_failover=is_failover, now_us=self._clock.now_us(), cipher=self._cipher)
        size = sum(map(len, frames))
        with self._room.taken(size, len(frames)):
            try:
                await file.append(frames, [(run.queue, name) for run in runs for name in run.partitions])
            except BufferFull as error:
                raise BufferExhausted(f"the buffer cannot be written: {error}") from error

    # the fence

    async def wait_until_free(self, places: Iterable[PartitionKey]) -> None:
        """For what cannot be buffered (transactions, Arrow): raises while messages that came before it wait."""
        if not await self._are_free(set(places)):
            raise StoreUnavailable(
                "messages of this partition that were accepted before wait in the failover buffer",
                remedy="Try again when they are stored: see /api/v1/status/buffers",
            )

    async def wait_until_all_free(self) -> None:
        """For what names no queue: for queues that refuse their buffered messages none waits."""
        refusing = self.drain_loop.drainers[BufferKind.FAILOVER].failed
        await self.wait_until_free([place for place in self._failover.backlog.places() if place[0] not in refusing])

    async def wait_until_stored(self, queue: str) -> None:
        """For a deletion: raises while messages that were accepted before it wait, for they would make the queue again.

        Those that the queue refuses are not waited for: they are offered to whatever queue has the name.
        """
        drain_loop = self.drain_loop
        deadline = time.monotonic() + self.limits.wait_seconds
        while waiting := self._count_waiting(queue):
            now = time.monotonic()
            if now >= deadline or drain_loop.is_paused or not drain_loop.health.is_healthy:
                raise StoreUnavailable(
                    f"{waiting} messages that were accepted for queue {queue!r} wait in the buffer files",
                    remedy="Try again when they are stored, or they would make it again: see /api/v1/status/buffers",
                )
            drain_loop.progress.clear()
            drain_loop.schedule.put_off(now)
            drain_loop.poke()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FENCE_LOOK_SECONDS):
                    await drain_loop.progress.wait()

    def _count_waiting(self, queue: str) -> int:
        """Messages of the queue in the buffer files; another process's may be of any queue."""
        waiting = 0
        for drainer in self.drain_loop.drainers.values():
            if queue not in drainer.failed:
                waiting += drainer.file.backlog.of_queue(queue)
            waiting += self._is_remote and drainer.file.has_strange_events()
        return waiting

    async def _are_free(self, places: set[PartitionKey]) -> bool:
        """Whether none of them is fenced. When little is left to drain, wait a moment for that.

        A push that does not wait goes behind, and makes the drain longer for the others. So the moment is long enough
        for a slow disk, where it takes a second to drain one event; and when it was not, none waits for a while.
        """
        drain_loop = self.drain_loop
        deadline = time.monotonic() + self.limits.wait_seconds
        while self._is_any_fenced(places):
            now = time.monotonic()
            if now < self._no_wait_until or not self._is_drain_ending():
                return False
            if now >= deadline:
                self._no_wait_until = now + self.limits.wait_seconds
                return False
            drain_loop.progress.clear()
            drain_loop.poke()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(deadline - now, FENCE_LOOK_SECONDS)):
                    await drain_loop.progress.wait()
        return True

    def _is_drain_ending(self) -> bool:
        drain_loop, file = self.drain_loop, self._failover
        if not drain_loop.health.is_healthy or drain_loop.is_paused or drain_loop.held_events > self.limits.wait_events:
            return False
        return file.is_owner or (file.waiting_bytes() <= self.limits.wait_bytes and not file.has_failed())

    def _is_any_fenced(self, places: set[PartitionKey]) -> bool:
        file = self._failover
        return any(map(file.backlog.holds, places)) or (self._is_remote and file.has_strange_events())


def _may_be_stored(error: ForebayError) -> bool:
    """Whether the messages may be in the store, or come out of the buffer, although neither has confirmed them."""
    return isinstance(error, StoreUnavailable) and error.is_outcome_unknown


def _truth_of(refusal: BufferExhausted | StoreUnavailable, trouble: StoreUnavailable) -> ForebayError:
    """Neither took the messages; but "not accepted" may be said only if nothing of the attempt can come to light."""
    if not trouble.is_outcome_unknown:
        return refusal
    return StoreUnavailable(f"{trouble}; {refusal}", is_outcome_unknown=True)


def _buffered(runs: Sequence[PushRun], receipt: str) -> list[Pushed]:
    return [Pushed("buffered", 0, "", receipt, len(run)) for run in runs]
