"""From the files into the store: in order, some thousand events at a time, each once.

`StoreUnavailable` ends a drain where it is; the next one goes on from the position. What the store refuses although it
is there (a full queue, a missing key) moves to a failed file of its queue, and so do later events of that queue: they
stay behind it. Failed files are offered again from time to time, oldest first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from forebay.broker.encryption import Cipher
from forebay.broker.messages import Pushed, PushItem
from forebay.clock import Clock
from forebay.commitlog.filesystem import File
from forebay.errors import AppendFailed, StoreUnavailable
from forebay.ingest.event import Event, item_of
from forebay.ingest.frames import Chunk, chunks
from forebay.ingest.lane import BufferLane, Rotation

_log = logging.getLogger("forebay.ingest")

Push = Callable[[Sequence[PushItem]], Awaitable[Sequence[Pushed]]]


@dataclass(slots=True)
class DrainCounts:
    """Since the process began."""

    drained: int = 0
    duplicates: int = 0
    store_writes: int = 0
    rotations: int = 0
    refused: int = 0
    damaged_bytes: int = 0
    damaged_ranges: int = 0


class _Waiting(NamedTuple):
    event: Event
    span: tuple[int, int]
    is_counted: bool
    """Whether the backlog knows it: another process's events it does not."""


class Refused(Exception):
    """The store is there, and does not take this queue's events."""


class Drainer:
    """Of one lane. `push` is the store's, with whatever time limit it has."""

    def __init__(
        self,
        lane: BufferLane,
        push: Push,
        clock: Clock,
        cipher: Cipher | None,
        on_stored: Callable[[Sequence[PushItem]], None],
    ) -> None:
        self.lane = lane
        self.counts = DrainCounts()
        self.failed: dict[str, list[str]] = {}
        """The failed files of each queue, oldest first."""
        self.failed_events = 0
        self._positions: dict[Path, int] = {}
        """How far files are drained, should the disk have no room for the note of it."""
        self._kept: set[tuple[Path, int]] = set()
        """Damaged bytes that are set aside already, should the events around them have to be tried again."""
        self._settled: set[tuple[int, int]] = set()
        """What of the chunk under way is stored or held already, should the rest of it have to be tried again."""
        self._push = push
        self._clock = clock
        self._cipher = cipher
        self._on_stored = on_stored
        self._directory = lane.directory

    async def drain(self, *, is_once: bool = False) -> None:
        """Store what was appended so far; and, unless `is_once`, what is appended meanwhile."""
        rotation = Rotation.LEFTOVER
        while not (is_once and rotation is Rotation.FRESH):
            rotation = await self.lane.rotate()
            if rotation is Rotation.NOTHING:
                return
            path = self._directory.processing(self.lane.lane)
            if rotation is Rotation.FRESH:
                self._forget(path)
                self.counts.rotations += 1
                _log.info("%s: rotated to %s", self.lane.lane, path)
            await self._drain_file(path, self._store)
            await self._remove(path)
            self.lane.drained()

    async def retry_failed(self) -> None:
        """Offer what was refused once more."""
        for queue, names in list(self.failed.items()):
            while names:
                path = self._directory.failed / names[0]
                if not self._directory.size(path):  # or it held several queues, and went with another one
                    with contextlib.suppress(FileNotFoundError):
                        await self._remove(path)
                    names.pop(0)
                    continue
                try:
                    await self._drain_file(path, self._store_again)
                except Refused as refused:
                    _log.debug("%s: still refused: %s", path, refused)
                    break
                await self._remove(path)
                names.pop(0)
                _log.warning("%s: what was refused is stored now", path)
            if not names:
                del self.failed[queue]

    async def _drain_file(self, path: Path, store: Callable[[Path, File, Chunk], Awaitable[None]]) -> None:
        start, size = await asyncio.to_thread(lambda: (self._directory.position(path), self._directory.size(path)))
        start = max(start, self._positions.get(path, 0))
        file = self._directory.open_to_read(path)
        try:
            read = chunks(file, start, size)
            while (chunk := await asyncio.to_thread(_next, read)) is not None:
                await self._set_aside(path, chunk)
                await store(path, file, chunk)
                self._positions[path] = chunk.end
                if chunk.end < size:  # else the file goes, and its position with it
                    await self._note_position(path, chunk.end)
        finally:
            file.close()

    async def _note_position(self, path: Path, position: int) -> None:
        try:
            await asyncio.to_thread(self._directory.note_position, path, position)
        except OSError as error:
            # A full disk must not keep the drain from making room on it. Ids tell what the note would have told.
            _log.warning("%s: how far it is stored could not be noted: %s", path, error)

    async def _remove(self, path: Path) -> None:
        await self.lane.in_files(lambda: self._directory.remove(path))
        self._forget(path)

    def _forget(self, path: Path) -> None:
        self._positions.pop(path, None)
        self._kept = {(kept, position) for kept, position in self._kept if kept != path}

    async def _set_aside(self, path: Path, chunk: Chunk) -> None:
        for damage in chunk.damages:
            if (path, damage.position) in self._kept:
                continue
            now_us = self._clock.now_us()
            kept = await asyncio.to_thread(self._directory.set_aside, self.lane.lane, path, damage, now_us)
            self._kept.add((path, damage.position))
            self.counts.damaged_ranges += 1
            self.counts.damaged_bytes += damage.size
            kind = "a torn end" if damage.is_torn_tail else "damaged"
            _log.error(
                "%s bytes %d-%d: %s (%s); kept in %s",
                path,
                damage.position,
                damage.position + damage.size,
                kind,
                damage.reason,
                kept,
            )

    # storing

    async def _store(self, path: Path, file: File, chunk: Chunk) -> None:
        """All of the chunk: into the store, or behind what the store refuses."""
        waiting = self._unsettled(chunk)
        held = [one for one in waiting if one.event.queue in self.failed] if self.failed else []
        free = [one for one in waiting if one.event.queue not in self.failed] if held else waiting
        try:
            await self._push_events([one.event for one in free])
            self._release(free)
        except Refused:
            held += await self._store_by_queue(free)
        for queue in dict.fromkeys(one.event.queue for one in held):
            await self._hold(file, queue, [one for one in held if one.event.queue == queue])
        self._settled.clear()

    def _unsettled(self, chunk: Chunk) -> list[_Waiting]:
        covers, settled = self.lane.backlog.processing.covers, self._settled
        found = zip(chunk.events, chunk.spans, strict=True)
        if covers((chunk.start, chunk.end)) and not settled:  # as almost always
            return [_Waiting(event, span, True) for event, span in found]
        return [_Waiting(event, span, covers(span)) for event, span in found if span not in settled]

    async def _store_by_queue(self, waiting: list[_Waiting]) -> list[_Waiting]:
        """Returns what is refused."""
        refused: list[_Waiting] = []
        for queue in dict.fromkeys(one.event.queue for one in waiting):
            own = [one for one in waiting if one.event.queue == queue]
            try:
                await self._push_events([one.event for one in own])
                self._release(own)
            except Refused as reason:
                _log.error("queue %r refuses %d buffered messages: %s", queue, len(own), reason)
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
            done += len(piece)
            self.failed_events -= len(piece)
            self.lane.backlog.remove([(event.queue, event.partition) for event in piece])
            self._positions[path] = chunk.spans[done - 1][1]
            await self._note_position(path, self._positions[path])

    async def _push_events(self, events: list[Event]) -> None:
        if not events:
            return
        try:
            items = [item_of(event, self._cipher) for event in events]
            pushed = await self._push(items)
        except (StoreUnavailable, AppendFailed):
            raise
        except TimeoutError as error:
            raise StoreUnavailable("the store did not take buffered messages in time") from error
        except Exception as error:
            raise Refused(str(error) or type(error).__name__) from error
        self.counts.store_writes += 1
        self.counts.drained += len(items)
        self.counts.duplicates += sum(1 for one in pushed if one.status == "duplicate")
        self._on_stored(items)

    def _release(self, waiting: Sequence[_Waiting]) -> None:
        places = [(one.event.queue, one.event.partition) for one in waiting if one.is_counted]
        self.lane.backlog.remove(places)
        self._settled.update([one.span for one in waiting])

    async def _hold(self, file: File, queue: str, waiting: list[_Waiting]) -> None:
        """Into the queue's failed file, as they are. Their places stay fenced."""
        if queue not in self.failed:
            path = await asyncio.to_thread(self._directory.new_failed, self.lane.lane, self._clock.now_us())
            self.failed[queue] = [path.name]
        path = self._directory.failed / self.failed[queue][-1]
        frames = [file.read_at(one.span[1] - one.span[0], one.span[0]) for one in waiting]
        await asyncio.to_thread(self._directory.append_failed, path, frames)
        self.lane.backlog.add([(queue, one.event.partition) for one in waiting if not one.is_counted])
        self.counts.refused += len(waiting)
        self.failed_events += len(waiting)
        self._settled.update(one.span for one in waiting)


def _next(read: Iterator[Chunk]) -> Chunk | None:
    return next(read, None)
