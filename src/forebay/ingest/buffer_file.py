"""One kind of buffer file in use: appends that wait together are one write; rotation and the count of what waits.

All that touches the active file runs in one thread, so that a rotation and the count of an append cannot cross. One
exception: a small QoS 0 append, which no sync follows, is written at once by the event loop and counted under the
file's lock. The way to the thread and back costs several times what the write does. When another process has the lock,
or the last such write took long (a disk that cannot keep up makes writers wait), appends go to the thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import NamedTuple, TypeVar

from forebay.ingest.backlog import Backlog, Known, PartitionKey
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import Appended, BufferKind
from forebay.ingest.frames import chunks
from forebay.model.batcher import Batcher

T = TypeVar("T")
Work = tuple[list[bytes], list[PartitionKey]]

WRITE_BYTES_MAX = 16 << 20
"""Of appends that share a write. A larger one goes alone."""


class AtOnce(NamedTuple):
    """Which appends the event loop makes by itself."""

    bytes_max: int = 256 << 10
    slow_seconds: float = 0.05
    """One that takes longer is the last for `rest_seconds`. Less may just be a busy processor."""
    rest_seconds: float = 1.0


AT_ONCE = AtOnce()


class Rotation(Enum):
    """What there is to drain."""

    NOTHING = 0
    LEFTOVER = 1
    """What an earlier drain did not finish."""
    FRESH = 2
    """All that was appended up to now."""


class Adopted(NamedTuple):
    failed: dict[str, list[str]]
    """The failed files of each queue, oldest first."""
    failed_events: int
    counted: dict[str, Known]
    """What of each failed file they are."""


class BufferFile:
    def __init__(
        self, directory: BufferDirectory, kind: BufferKind, files: ThreadPoolExecutor, at_once: AtOnce = AT_ONCE
    ) -> None:
        self.directory = directory
        self.kind = kind
        self.backlog = Backlog()
        self.is_owner = False
        """Whether this process drains the directory."""
        self.appended = 0
        self._files = files
        self._writing: Appended | None = None
        """Where the append under way goes."""
        self._is_processing_foreign = False
        self._is_durable = kind is BufferKind.FAILOVER
        self._appends: Batcher[Work, None] = Batcher(self._write, size_max=WRITE_BYTES_MAX)
        self._may_append = asyncio.Event()
        self._may_append.set()
        self._at_once = at_once
        self._at_once_from = 0.0

    async def append(self, frames: list[bytes], places: list[PartitionKey]) -> None:
        """Be in the file on return; synced, if this is failover. The places are fenced from the first moment on."""
        await self._may_append.wait()
        if not self.is_owner:  # the process that drains cannot say here what is gone, so nothing is counted
            places = []
        self.backlog.add(places)
        size = sum(map(len, frames))
        try:
            if not self._append_at_once(frames, size):
                await asyncio.shield(self._appends.submit((frames, places), size))
        except asyncio.CancelledError:
            raise  # the frames are written all the same, and stay counted
        except BaseException:
            self.backlog.remove(places)
            raise
        self.appended += len(frames)

    def _append_at_once(self, frames: list[bytes], size: int) -> bool:
        """Whether it was done. Behind appends that wait nothing is done at once, or it would overtake them."""
        began = time.monotonic()
        if (
            self._is_durable
            or size > self._at_once.bytes_max
            or began < self._at_once_from
            or not self._appends.is_idle
        ):
            return False
        is_done = self.directory.append_if_free(self.kind, frames, self._note_known)
        ended = time.monotonic()
        if ended - began > self._at_once.slow_seconds:
            self._at_once_from = ended + self._at_once.rest_seconds
        return is_done

    async def settled(self) -> None:
        """Until nothing is on its way to the file."""
        await self._appends.drain()

    async def _write(self, group: Sequence[Work]) -> Sequence[None]:
        frames = [frame for work, _ in group for frame in work]
        await self.in_files(lambda: self._append(frames))
        return [None] * len(group)

    def _append(self, frames: list[bytes]) -> None:
        try:
            place = self.directory.append(self.kind, frames, is_durable=self._is_durable, on_begin=self._note_writing)
            self._note_known(place)
        finally:
            self._writing = None

    def _note_known(self, place: Appended) -> None:
        # Only the process that drains tells its own bytes from others', and forgets them when they are drained. A
        # process that takes over reads the files anew.
        if self.is_owner:
            self.backlog.active.add(*place)

    def _note_writing(self, place: Appended) -> None:
        self._writing = place

    async def rotate(self) -> Rotation:
        """Have something to drain, if there is anything."""
        return await self.in_files(self._rotate)

    def _rotate(self) -> Rotation:
        processing = self.directory.processing(self.kind)
        if self.directory.size(processing):
            return Rotation.LEFTOVER
        is_fresh = self.directory.rotate(self.kind, on_begin=self._note_foreign, on_renamed=self.backlog.rotated)
        return Rotation.FRESH if is_fresh else Rotation.NOTHING

    def _note_foreign(self, size: int) -> None:
        """Before the file has its new name, or others' events would for a moment be seen under neither."""
        self._is_processing_foreign = size != self.backlog.active.size

    def drained(self) -> None:
        """Of the processing file nothing is left to store, be the file gone or not."""
        self.backlog.processing = Known()
        self._is_processing_foreign = False

    async def in_files(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._files, work)

    # which pushes have to go behind what waits

    def has_bytes(self) -> bool:
        """Whether there is anything to drain, be it only bytes that are no events."""
        return self.waiting_bytes() > 0

    def waiting_bytes(self) -> int:
        """Of all processes, without what the store refuses."""
        return self.directory.waiting_bytes([self.kind])

    def has_strange_events(self) -> bool:
        """Whether there are events whose partitions are not known here."""
        size = self.directory.size
        active = size(self.directory.active(self.kind))
        if self.is_owner:
            # After the look at the file: an append of our own that it shows has been noted by then.
            writing, known = self._writing, self.backlog.active.size
            is_active_foreign = active > known if writing is None else writing.start > known or active > writing.end
            return is_active_foreign or self._is_processing_foreign
        return active > 0 or size(self.directory.processing(self.kind)) > 0 or self.has_failed()

    def has_failed(self) -> bool:
        """Whether there is anything that the store refuses."""
        return any(failed.kind is self.kind for failed in self.directory.failed.files())

    # taking over what another process left

    async def adopt(self, on_events: Callable[[int], None]) -> Adopted:
        """Count what is in the files, as the process that drains them from now on. Appends wait meanwhile."""
        self._may_append.clear()
        try:
            await self.settled()
            backlog, adopted = await self.in_files(lambda: self._counted(on_events))
            # By the event loop: a push there may be looking at the fence, and must not see half of the old one, where
            # this process knows of nothing, and half of the new one, where it has counted everything.
            self.backlog, self._is_processing_foreign, self.is_owner = backlog, False, True
        finally:
            self._may_append.set()
        return adopted

    def _counted(self, on_events: Callable[[int], None]) -> tuple[Backlog, Adopted]:
        backlog = Backlog()
        failed: dict[str, list[str]] = {}
        counted: dict[str, Known] = {}
        for one in self.directory.failed.files():
            if one.kind is self.kind:
                counted[one.path.name] = Known()
                counted[one.path.name].add(0, one.size)
                # One that holds no event belongs to no queue, and is cleared away like the others.
                for queue in self._count(backlog, one.path, one.size, on_events) or {""}:
                    failed.setdefault(queue, []).append(one.path.name)
        failed_events = backlog.events
        for path, known in (
            (self.directory.processing(self.kind), backlog.processing),
            (self.directory.active(self.kind), backlog.active),
        ):
            size = self.directory.size(path)  # others may append meanwhile
            self._count(backlog, path, size, on_events)
            known.add(0, size)
        return backlog, Adopted(failed, failed_events, counted)

    def _count(self, backlog: Backlog, path: Path, size: int, on_events: Callable[[int], None]) -> set[str]:
        queues: set[str] = set()
        if not size:
            return queues
        file = self.directory.open_to_read(path)
        try:
            for chunk in chunks(file, self.directory.positions.of(path), size):
                backlog.add([(event.queue, event.partition) for event in chunk.events])
                queues.update(event.queue for event in chunk.events)
                on_events(len(chunk.events))
        finally:
            file.close()
        return queues
