"""From the files into the store: in order, some thousand events at a time, each once.

`StoreUnavailable` ends a drain where it is; the next one goes on from the position. What the store refuses although it
is there (a full queue, a missing key) moves to a failed file of its queue, and so do later events of that queue: they
stay behind it. Failed files are offered again from time to time, oldest first. What can neither be stored nor be kept
elsewhere (`kept`) holds up no other event, only the removal of its file.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from forebay.broker.encryption import Cipher
from forebay.broker.messages import DUPLICATE, FAILED, UNKNOWN, Pushed
from forebay.broker.numbering import count_of
from forebay.clock import Clock
from forebay.errors import AppendFailed, StoreUnavailable
from forebay.filesystem import File
from forebay.ingest.backlog import Known
from forebay.ingest.buffer_file import BufferFile, Rotation
from forebay.ingest.event import Event, runs_of
from forebay.ingest.frames import Chunk, chunks
from forebay.ingest.refused_events import DiskTrouble, DrainCounts, RefusedEvents, Waiting, try_all
from forebay.model.push_run import PushRun

_log = logging.getLogger("forebay.ingest")

Push = Callable[[Sequence[PushRun]], Awaitable[Sequence[Pushed]]]


class Refused(Exception):
    """The store is there, and does not take this queue's events."""


class DrainEnded(Exception):
    """The drain was stopped, and has more to do."""


class Drainer:
    """Of one kind of buffer file. `push` is the store's, with whatever time limit it has."""

    def __init__(
        self,
        file: BufferFile,
        push: Push,
        clock: Clock,
        cipher: Cipher | None,
        on_stored: Callable[[Sequence[PushRun]], None],
        chunk_events: int,
    ) -> None:
        self.file = file
        self.counts = DrainCounts()
        self.kept = RefusedEvents(file, clock, self.counts)
        self.is_ending = False
        """Whether the drain ends before the next chunk."""
        self._positions: dict[Path, int] = {}
        """How far files are drained, should the disk have no room for the note of it."""
        self._finished = Known()
        """The chunks of the processing file of which nothing is left to do."""
        self._settled: set[tuple[int, int]] = set()
        """What of its other chunks is stored or held already, should the rest of them have to be tried again."""
        self._push = push
        self._clock = clock
        self._cipher = cipher
        self._on_stored = on_stored
        self._chunk_events = chunk_events
        self._directory = file.directory

    @property
    def failed(self) -> dict[str, list[str]]:
        """The failed files of each queue, oldest first."""
        return self.kept.failed

    @property
    def failed_events(self) -> int:
        return self.kept.events

    async def drain(self, *, is_once: bool = False) -> None:
        """Store what was appended so far; and, unless `is_once`, what is appended meanwhile."""
        rotation = Rotation.LEFTOVER
        while not (is_once and rotation is Rotation.FRESH):
            rotation = await self.file.rotate()
            if rotation is Rotation.NOTHING:
                return
            path = self._directory.processing(self.file.kind)
            if rotation is Rotation.FRESH:
                self._forget(path)
                self.counts.rotations += 1
                _log.info("%s: rotated to %s", self.file.kind, path, extra={"action": "buffer_rotated"})
            self.kept.begin()
            try:
                await self._drain_file(path, self._store)
            except DiskTrouble:
                if not self.kept.is_any_stuck:  # only bytes that are no events are left
                    self.file.drained()
                raise
            self.file.drained()
            await self._remove(path)

    async def retry_failed(self) -> None:
        """Offer what was refused once more."""
        trouble: DiskTrouble | None = None
        for queue, names in list(self.failed.items()):
            while names:
                path = self._directory.failed.path / names[0]
                if not self._directory.size(path):  # or it held several queues, and went with another one
                    with contextlib.suppress(FileNotFoundError):
                        await self._remove(path)
                    names.pop(0)
                    continue
                try:
                    await self._drain_file(path, self._store_again)
                except Refused as refused:
                    _log.debug("%s: still refused: %s", path, refused, extra={"action": "buffer_still_refused"})
                    break
                except DiskTrouble as error:
                    trouble = trouble or error
                    break
                await self._remove(path)
                names.pop(0)
                _log.warning("%s: what was refused is stored now", path, extra={"action": "buffer_refused_stored"})
            if not names:
                del self.failed[queue]
        if trouble is not None:
            raise trouble

    async def _drain_file(self, path: Path, store: Callable[[Path, File, Chunk], Awaitable[None]]) -> None:
        """From where it was left to its end. `DiskTrouble` is raised when everything else is done."""
        start, size = await asyncio.to_thread(lambda: (self._directory.positions.of(path), self._directory.size(path)))
        start = max(start, self._positions.get(path, 0))
        trouble: DiskTrouble | None = None
        file = self._directory.open_to_read(path)
        try:
            read = chunks(file, start, size, events_max=self._chunk_events)
            while (chunk := await asyncio.to_thread(_next, read)) is not None:
                if self.is_ending:
                    raise DrainEnded
                try:
                    await store(path, file, chunk)
                except DiskTrouble as error:
                    trouble = trouble or error
                    if (
                        path.parent == self._directory.failed.path
                    ):  # its position moves within chunks, and would pass it
                        break
                if trouble is None:
                    self._positions[path] = chunk.end
                    if chunk.end < size:  # else the file goes, and its position with it
                        await self._note_position(path, chunk.end)
        finally:
            file.close()
        if trouble is not None:
            raise trouble

    async def _note_position(self, path: Path, position: int) -> None:
        try:
            await asyncio.to_thread(self._directory.positions.note, path, position)
        except OSError as error:
            # A full disk must not keep the drain from making room on it. Ids say what the note would have said.
            _log.warning(
                "%s: how far it is stored could not be noted: %s",
                path,
                error,
                extra={"action": "buffer_position_failed"},
            )

    async def _remove(self, path: Path) -> None:
        try:
            await self.file.in_files(lambda: self._directory.remove(path))
        finally:
            if not self._directory.size(path):  # it is gone, although the disk may not have confirmed it
                self._forget(path)

    def _forget(self, path: Path) -> None:
        self._positions.pop(path, None)
        self.kept.forget(path)
        if path == self._directory.processing(self.file.kind):
            self._finished = Known()
            self._settled.clear()

    # storing

    async def _store(self, path: Path, file: File, chunk: Chunk) -> None:
        """All of the chunk: into the store, or behind what the store refuses, or to where damaged bytes are kept."""
        if self._finished.covers((chunk.start, chunk.end)):
            return
        await self._store_events(file, self._unsettled(chunk))
        await self.kept.set_aside(path, chunk)
        self._finished.add(chunk.start, chunk.end)
        self._settled.difference_update(chunk.spans)

    async def _store_events(self, file: File, waiting: list[Waiting]) -> None:
        is_behind = self.kept.is_behind
        held = [one for one in waiting if is_behind(one.event.queue)]
        free = [one for one in waiting if not is_behind(one.event.queue)] if held else waiting
        try:
            await self._push_events([one.event for one in free])
            self._release(free)
        except Refused:
            held += await self._store_by_queue(free)
        await try_all(
            partial(self._hold, file, queue, [one for one in held if one.event.queue == queue])
            for queue in dict.fromkeys(one.event.queue for one in held)
        )

    async def _hold(self, file: File, queue: str, waiting: list[Waiting]) -> None:
        await self.kept.hold(file, queue, waiting)
        self._settled.update(one.span for one in waiting)

    def _unsettled(self, chunk: Chunk) -> list[Waiting]:
        covers, settled = self.file.backlog.processing.covers, self._settled
        found = zip(chunk.events, chunk.spans, strict=True)
        if covers((chunk.start, chunk.end)) and not settled:  # as almost always
            return [Waiting(event, span, True) for event, span in found]
        return [Waiting(event, span, covers(span)) for event, span in found if span not in settled]

    async def _store_by_queue(self, waiting: list[Waiting]) -> list[Waiting]:
        """Returns what is refused."""
        refused: list[Waiting] = []
        for queue in dict.fromkeys(one.event.queue for one in waiting):
            own = [one for one in waiting if one.event.queue == queue]
            try:
                await self._push_events([one.event for one in own])
                self._release(own)
            except Refused as reason:
                _log.error(
                    "queue %r refuses %d buffered messages: %s",
                    queue,
                    len(own),
                    reason,
                    extra={"action": "buffer_refused"},
                )
                refused += own
        return refused

    async def _store_again(self, path: Path, file: File, chunk: Chunk) -> None:
        """As many as the store takes: a queue that is full has room for some when consumers have taken some."""
        done, size = 0, len(chunk.events)
        while done < len(chunk.events):
            piece = chunk.events[done : done + size]
            try:
                await self._push_events(piece)
            except Refused:
                if size == 1:
                    raise
                size //= 2
                continue
            spans = chunk.spans[done : done + len(piece)]
            done += len(piece)
            self._positions[path] = spans[-1][1]  # first, so that nothing that goes wrong here can go wrong again
            self.kept.release(path, piece, spans)
            await self._note_position(path, self._positions[path])
        await self.kept.set_aside(path, chunk)

    async def _push_events(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            runs = runs_of(events, self._cipher)
            pushed = await self._push(runs)
            _check_stored(pushed)
        except (StoreUnavailable, AppendFailed):
            raise
        except TimeoutError as error:
            raise StoreUnavailable("the store did not take buffered messages in time") from error
        except Exception as error:
            raise Refused(str(error) or type(error).__name__) from error
        self.counts.store_writes += 1
        self.counts.drained += len(events)
        self.counts.duplicates += count_of(DUPLICATE, pushed)
        self._on_stored(runs)

    def _release(self, waiting: Sequence[Waiting]) -> None:
        self._settled.update([one.span for one in waiting])
        self.file.backlog.remove([(one.event.queue, one.event.partition) for one in waiting if one.is_counted])


def _check_stored(pushed: Sequence[Pushed]) -> None:
    """A push to many queues may be stored in part: then all of it comes again, and its ids tell what is there."""
    failed = [one for one in pushed if one.status in (FAILED, UNKNOWN)]
    if failed:
        missing, count = sum(one.count for one in failed), sum(one.count for one in pushed)
        raise StoreUnavailable(f"{missing} of {count} buffered messages are not stored: {failed[0].receipt}")


def _next(read: Iterator[Chunk]) -> Chunk | None:
    return next(read, None)
