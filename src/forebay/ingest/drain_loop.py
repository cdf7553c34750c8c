"""The buffer files at work: opened with the server, drained beside its requests, and closed when it stops."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from forebay.broker.encryption import Cipher
from forebay.broker.messages import Pushed
from forebay.broker.store import PUSH_MAINTENANCE, Store, Waker
from forebay.clock import Clock
from forebay.errors import AppendFailed, ForebayError, StoreUnavailable
from forebay.filesystem import Filesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_file import BufferFile
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.drainer import DrainEnded, Drainer
from forebay.ingest.figures import BufferFigures, CountedEvents, figures_of, file_figures
from forebay.ingest.health import StoreHealth
from forebay.ingest.limits import BufferLimits
from forebay.ingest.recovery import Recovery
from forebay.ingest.refused_events import DiskTrouble, try_all
from forebay.ingest.schedule import FlushSchedule
from forebay.model.push_run import PushRun

_log = logging.getLogger("forebay.ingest")

T = TypeVar("T")

HEALTH_SECONDS = 1.0


class DrainLoop:
    """`start` before the first push, `stop` after the last; then the store may be closed."""

    def __init__(
        self,
        store: Store,
        filesystem: Filesystem,
        directory: Path,
        clock: Clock,
        limits: BufferLimits,
        cipher: Cipher | None,
        on_stored: Callable[[Sequence[PushRun]], None],
    ) -> None:
        self.health = StoreHealth()
        self.recovery = Recovery()
        self.schedule = FlushSchedule(limits.flush_seconds, limits.batch_events)
        self.is_paused = False
        """Push maintenance: everything is buffered and nothing is drained."""
        self.is_store_open = False
        self._failed_bytes = 0
        """As of the last look."""
        self.progress = asyncio.Event()
        """Set whenever something was drained."""
        self.directory = BufferDirectory(filesystem, directory)
        self._store = store
        self._clock = clock
        self._limits = limits
        self._files = ThreadPoolExecutor(1, thread_name_prefix="forebay-buffer")
        self.failover = BufferFile(self.directory, BufferKind.FAILOVER, self._files)
        self.qos0 = BufferFile(self.directory, BufferKind.QOS0, self._files)
        self.drainers = {
            file.kind: Drainer(file, self._push_chunk, clock, cipher, on_stored, limits.chunk_events)
            for file in (self.failover, self.qos0)
        }
        self._next_retry = self._next_health = 0.0
        self._is_disk_in_trouble = False
        """Whether the last drain found the disk of the buffer files unable, and that was logged."""
        self._poke = asyncio.Event()
        self._is_stopping = False
        self._on_available: Waker = lambda queue, count: None
        self._worker: asyncio.Task[None] | None = None

    @property
    def held_events(self) -> int:
        """Failover events that wait for the drain, without those that the store refuses."""
        return self.failover.backlog.events - self.drainers[BufferKind.FAILOVER].failed_events

    @property
    def size_bytes(self) -> int:
        """Of all buffer files."""
        return self.directory.waiting_bytes() + self._failed_bytes

    def poke(self) -> None:
        """Something may be due."""
        self._poke.set()

    # start and stop

    async def start(self, on_available: Waker) -> None:
        """Recover what the files hold, if the store is there; else leave it for later. Raises what is permanent."""
        self._on_available = on_available
        await self.in_files(self.directory.prepare)
        is_owner = await self._own_directory()
        try:
            await self._open_store()
            if is_owner and not self.is_paused:
                await self._recover()
        except (StoreUnavailable, AppendFailed) as error:
            self.note_failure(str(error))
        finally:
            self.recovery.end()
        self._worker = asyncio.create_task(self._work(), name="forebay-drain")

    async def _recover(self) -> None:
        try:
            await self.recovery.run(self.drainers.values(), self._drain)
            self.schedule.flushed()
        except DiskTrouble as error:  # no reason to serve no pushes
            self._note_disk_trouble(error)

    async def _open_store(self) -> None:
        if not self.is_store_open:
            await self._store.open(self._on_available)
            self.is_paused = await self._store.flag(PUSH_MAINTENANCE)
            self.is_store_open = True

    async def _own_directory(self) -> bool:
        """Be the process that drains, if no other does."""
        if self.failover.is_owner:
            return True
        owner = f"process {os.getpid()}"
        if not await self.in_files(lambda: self.directory.take_drain_lock(owner)):
            return False
        for drainer in (self.drainers[BufferKind.QOS0], self.drainers[BufferKind.FAILOVER]):
            drainer.kept.adopt(await drainer.file.adopt(self.recovery.found))
        self._failed_bytes = await self.in_files(self.directory.failed.size_bytes)
        self.schedule.put_off(time.monotonic())  # what other processes have pushed is not noted
        return True

    async def stop(self) -> None:
        """Store what waits, if the store takes it; otherwise it waits in the files for the next start."""
        self._is_stopping = True
        self._end_drains(is_ending=True)
        self.poke()
        if self._worker is not None:
            await self._worker
            await self.failover.settled()
            await self.qos0.settled()
            self._end_drains(is_ending=False)
            if self.is_store_open and self.health.is_healthy and self.failover.is_owner and not self.is_paused:
                with contextlib.suppress(ForebayError, DiskTrouble, TimeoutError):
                    async with asyncio.timeout(self._limits.stop_seconds):
                        await try_all(drainer.drain for drainer in self.drainers.values())
        self.directory.release_drain_lock()
        self._files.shutdown()

    # draining

    def _end_drains(self, *, is_ending: bool) -> None:
        for drainer in self.drainers.values():
            drainer.is_ending = is_ending

    async def _work(self) -> None:
        while not self._is_stopping:
            await self._pause()
            now = time.monotonic()
            try:
                await self._look_and_drain(now)
            except DrainEnded:
                continue
            except Exception as error:  # noqa: BLE001 -- whatever it is, what was accepted has to be tried again
                self.schedule.put_off(now)
                await self._bear(error)

    async def _look_and_drain(self, now: float) -> None:
        if not self.is_store_open:
            await self._open_store()
        if not self.health.is_healthy or now >= self._next_health:
            self._next_health = now + HEALTH_SECONDS
            self._failed_bytes = await self.in_files(self.directory.failed.size_bytes)
            await self._look_at_store()
        if self.is_paused or not await self._own_directory():
            return
        steps: list[Callable[[], Awaitable[None]]] = []
        if now >= self._next_retry:
            self._next_retry = now + self._limits.retry_seconds
            steps += [drainer.retry_failed for drainer in self.drainers.values()]
        await try_all([*steps, partial(self._drain, self.drainers[BufferKind.FAILOVER]), partial(self._flush, now)])
        self._is_disk_in_trouble = False

    async def _flush(self, now: float) -> None:
        if self.schedule.is_due(now) or self.qos0.has_strange_events():
            self.schedule.flushed()
            await self._drain(self.drainers[BufferKind.QOS0])

    async def _bear(self, error: Exception) -> None:
        """Tell what went wrong, and wait a moment: a store that is away is waited for anyway."""
        if isinstance(error, StoreUnavailable | AppendFailed):
            self.note_failure(str(error))
            return
        if isinstance(error, DiskTrouble):
            self._note_disk_trouble(error)
        else:
            _log.error(
                "BUG: the drain of buffer files failed; it is tried again",
                exc_info=error,
                extra={"action": "buffer_drain_bug"},
            )
        await asyncio.sleep(self._limits.retry_seconds)

    async def _pause(self) -> None:
        if self.health.is_healthy:
            seconds = self.schedule.seconds_until_due(time.monotonic(), self._limits.flush_seconds)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._poke.wait()
        else:
            await asyncio.sleep(self._limits.probe_seconds)
        self._poke.clear()

    async def _drain(self, drainer: Drainer) -> None:
        if not drainer.file.has_bytes():
            return
        before = drainer.counts.drained
        await drainer.drain(is_once=drainer.file is self.qos0)
        self.progress.set()
        if drainer.counts.drained > before:
            _log.info(
                "%s: %d events flushed",
                drainer.file.kind,
                drainer.counts.drained - before,
                extra={"action": "buffer_flushed"},
            )

    async def _push_chunk(self, runs: Sequence[PushRun]) -> Sequence[Pushed]:
        async with asyncio.timeout(self._limits.drain_seconds):
            pushed = await self._store.push(runs)
        self.note_success()
        self.progress.set()
        return pushed

    async def _look_at_store(self) -> None:
        """Raises when the store does not answer. Nothing else would notice that while there are no pushes."""
        try:
            async with asyncio.timeout(self._limits.store_seconds):
                is_healthy = await self._store.is_healthy()
        except TimeoutError:
            is_healthy = False
        if not is_healthy:
            raise StoreUnavailable("it does not answer")
        # What answers may still refuse to write, so while something waits, storing it is the proof. In maintenance
        # nothing is stored, however well the store is.
        if self.is_paused or not (self.held_events or self.qos0.backlog.events):
            self.note_success()

    # what is reported

    def note_failure(self, reason: str) -> None:
        if self.health.failed(reason, self._clock.now_us()):
            _log.error(
                "failover begins, pushes go to %s: the store is away: %s",
                self.directory.base,
                reason,
                extra={"action": "failover_began"},
            )

    def _note_disk_trouble(self, error: DiskTrouble) -> None:
        """Once, until it is over: it is tried again all the time."""
        if not self._is_disk_in_trouble:
            _log.error(
                "buffer files cannot be drained to their end, which is tried again while serving: %s",
                error,
                extra={"action": "buffer_drain_failed"},
            )
        self._is_disk_in_trouble = True

    def note_success(self) -> None:
        if self.health.succeeded(self._clock.now_us()):
            _log.warning("failover ends: the store takes messages again", extra={"action": "failover_ended"})

    async def figures(self) -> BufferFigures:
        kinds = {kind: file_figures(drainer) for kind, drainer in self.drainers.items()}
        health, is_owner, now_us = replace(self.health), self.failover.is_owner, self._clock.now_us()
        return await self.in_files(lambda: figures_of(self.directory, kinds, health, now_us, is_owner=is_owner))

    def counted(self) -> CountedEvents:
        """What is known to wait in the files, without a look at them."""
        queues: Counter[str] = Counter()
        for drainer in self.drainers.values():
            queues.update(drainer.file.backlog.by_queue())
        return CountedEvents(dict(queues), sum(drainer.file.appended for drainer in self.drainers.values()))

    async def in_files(self, work: Callable[[], T]) -> T:
        """Do it in the thread that appends and rotates."""
        return await asyncio.get_running_loop().run_in_executor(self._files, work)
