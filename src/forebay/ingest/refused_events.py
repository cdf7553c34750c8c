"""What a drain cannot store and must not lose: events that the store refuses, and bytes that are no events.

Both are copied to `failed/` before their old place is given up. A disk that does not take them (`DiskTrouble`) loses
nothing by that: they stay where they are, the file they are in is not removed, and they are tried again later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from forebay.clock import Clock
from forebay.errors import StoreUnavailable
from forebay.filesystem import File
from forebay.ingest.backlog import Known
from forebay.ingest.buffer_file import Adopted, BufferFile
from forebay.ingest.buffer_writes import Appended, BufferFull
from forebay.ingest.event import Event
from forebay.ingest.frames import Chunk

_log = logging.getLogger("forebay.ingest")

_DISK_TROUBLES = (OSError, BufferFull, StoreUnavailable)


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


class Waiting(NamedTuple):
    event: Event
    span: tuple[int, int]
    is_counted: bool
    """Whether the backlog knows it: another process's events it does not."""


class DiskTrouble(Exception):
    """The disk of the buffer files does not let the drain come to its end, although the store is there."""


async def try_all(steps: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """One after the other. What the disk did not let one of them do is raised when the others have had their turn."""
    trouble: DiskTrouble | None = None
    for step in steps:
        try:
            await step()
        except DiskTrouble as error:
            trouble = trouble or error
        except OSError as error:
            trouble = trouble or DiskTrouble(str(error))
    if trouble is not None:
        raise trouble


class RefusedEvents:
    """Of one buffer file."""

    def __init__(self, file: BufferFile, clock: Clock, counts: DrainCounts) -> None:
        self.failed: dict[str, list[str]] = {}
        """The failed files of each queue, oldest first."""
        self.events = 0
        """In the failed files."""
        self._counted: dict[str, Known] = {}
        """What of each failed file is counted. An append that failed may have left more there than that."""
        self._set_aside: set[tuple[Path, int]] = set()
        """Damaged bytes that are set aside already, should the events around them have to be tried again."""
        self._stuck: set[str] = set()
        """Queues of which something could not be held: what comes later must not overtake it."""
        self._file = file
        self._directory = file.directory
        self._clock = clock
        self._counts = counts

    def adopt(self, adopted: Adopted) -> None:
        self.failed, self.events, self._counted = adopted

    def forget(self, path: Path) -> None:
        """The file is gone."""
        self._set_aside = {(kept, position) for kept, position in self._set_aside if kept != path}
        self._counted.pop(path.name, None)

    # events that the store refuses

    @property
    def is_any_stuck(self) -> bool:
        return bool(self._stuck)

    def begin(self) -> None:
        """A file is drained from the first place where something is left, so everything may be tried again."""
        self._stuck.clear()

    def is_behind(self, queue: str) -> bool:
        """Whether events of the queue have to wait behind earlier ones that were refused."""
        return queue in self.failed or queue in self._stuck

    async def hold(self, file: File, queue: str, waiting: Sequence[Waiting]) -> None:
        """Into the queue's failed file, as they are. Their places stay fenced."""
        if queue in self._stuck:
            raise DiskTrouble(f"earlier events of queue {queue!r} could not be moved")
        try:
            frames = [file.read_at(one.span[1] - one.span[0], one.span[0]) for one in waiting]
            path, place = await asyncio.to_thread(self._append, queue, frames)
        except _DISK_TROUBLES as error:
            self._stuck.add(queue)
            raise DiskTrouble(f"refused events of queue {queue!r} cannot be moved: {error}") from error
        self.failed.setdefault(queue, [path.name])
        self._counted.setdefault(path.name, Known()).add(*place)
        self._file.backlog.add([(queue, one.event.partition) for one in waiting if not one.is_counted])
        self._counts.refused += len(waiting)
        self.events += len(waiting)

    def _append(self, queue: str, frames: list[bytes]) -> tuple[Path, Appended]:
        if queue in self.failed:
            path = self._directory.failed.path / self.failed[queue][-1]
        else:
            path = self._directory.failed.new_file(self._file.kind, self._clock.now_us())
        return path, self._directory.failed.append(path, frames)

    def release(self, path: Path, events: Sequence[Event], spans: Sequence[tuple[int, int]]) -> None:
        """These of the failed file are stored at last."""
        covers = self._counted.get(path.name, Known()).covers
        found = zip(events, spans, strict=True)
        places = [(event.queue, event.partition) for event, span in found if covers(span)]
        self.events -= len(places)
        self._file.backlog.remove(places)

    # bytes that are no events

    async def set_aside(self, path: Path, chunk: Chunk) -> None:
        for damage in chunk.damages:
            if (path, damage.position) in self._set_aside:
                continue
            span = f"{path} bytes {damage.position}-{damage.position + damage.size}"
            now_us = self._clock.now_us()
            try:
                kept = await asyncio.to_thread(self._directory.failed.set_aside, self._file.kind, path, damage, now_us)
            except _DISK_TROUBLES as error:
                raise DiskTrouble(
                    f"{span} hold no event ({damage.reason}), and cannot be set aside: {error}"
                ) from error
            self._set_aside.add((path, damage.position))
            self._counts.damaged_ranges += 1
            self._counts.damaged_bytes += damage.size
            kind = "a torn end" if damage.is_torn_tail else "damaged"
            _log.error("%s: %s (%s); kept in %s", span, kind, damage.reason, kept, extra={"action": "buffer_damaged"})
