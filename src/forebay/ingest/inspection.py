"""Buffer files for people: what a directory of them holds, and the events of one. Nothing here changes anything.

A server may append, rotate and drain meanwhile. What is shown is then the view of a moment: a file that was drained
while it was being read is shown as it was.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from forebay.errors import Permanent
from forebay.filesystem import File, RealFilesystem
from forebay.ingest.buffer_directory import BufferDirectory
from forebay.ingest.buffer_writes import BufferKind
from forebay.ingest.event import Event
from forebay.ingest.frames import Chunk, Damage, chunks

WRITE_SECONDS = 0.05
"""An event that is cut off at the end of a file may be just being written."""


class FileView(NamedTuple):
    name: str
    """Relative to the directory."""
    kind: str
    state: str
    """`active` (appended to), `processing` (drained), `failed` (refused by the store), `damaged`, `unknown`."""
    size_bytes: int
    events: int
    """That are not stored yet."""
    oldest_us: int | None
    queues: dict[str, int]
    damaged_bytes: int


class DirectoryView(NamedTuple):
    directory: Path
    drainer: str | None
    """The process that drains it."""
    files: list[FileView]


class Found(NamedTuple):
    """One event and where it is."""

    position: int
    size_bytes: int
    event: Event


def view_of(base: Path, on_progress: Callable[[float], None]) -> DirectoryView:
    """Everything in a buffer directory, in the order in which it would be drained."""
    directory = BufferDirectory(RealFilesystem(), base)
    if not base.is_dir():
        raise Permanent(f"{base}: there is no such directory", remedy="Name the one that the server's buffer.dir names")
    views: list[FileView] = []
    has_failed = directory.failed.path.is_dir()
    for one in directory.failed.files() if has_failed else []:
        views += _counted(directory, one.path, one.kind, "failed", on_progress)
    for kind in BufferKind:
        views += _counted(directory, directory.processing(kind), kind, "processing", on_progress)
        views += _counted(directory, directory.active(kind), kind, "active", on_progress)
    if has_failed:
        views += [_uncounted(directory, f"failed/{path.name}", "damaged") for path in directory.failed.damaged()]
        views += [_uncounted(directory, name, "unknown") for name in directory.strangers()]
    return DirectoryView(base, drainer_of(base), views)


def drainer_of(base: Path) -> str | None:
    try:
        return RealFilesystem().lock_owner(base / "drain.lock")
    except FileNotFoundError:
        return None


def _counted(
    directory: BufferDirectory, path: Path, kind: BufferKind, state: str, on_progress: Callable[[float], None]
) -> Iterator[FileView]:
    """One view; none when the file is gone or empty."""
    size = directory.size(path)
    queues: Counter[str] = Counter()
    oldest_us: int | None = None
    damaged = 0
    try:
        for chunk in read_chunks(path, directory.positions.of(path)):
            if oldest_us is None and chunk.events:
                oldest_us = chunk.events[0].accepted_us
            queues.update(event.queue for event in chunk.events)
            damaged += sum(damage.size for damage in chunk.damages)
            on_progress(chunk.end - chunk.start)
    except FileNotFoundError:
        return
    if size:
        name = str(path.relative_to(directory.base))
        yield FileView(name, kind, state, size, queues.total(), oldest_us, dict(queues), damaged)


def _uncounted(directory: BufferDirectory, name: str, state: str) -> FileView:
    kind = next((kind for kind in BufferKind if state == "damaged" and name.startswith(f"failed/{kind}_")), "")
    size = directory.size(directory.base / name)
    return FileView(name, kind, state, size, 0, None, {}, size if state == "damaged" else 0)


# one file


def read_chunks(path: Path, start: int = 0) -> Iterator[Chunk]:
    """From a position to the end, also as far as the file grows meanwhile."""
    with _opened(path) as file:
        position, size = start, file.size()
        while position < size:
            for chunk in chunks(file, position, size):
                position = chunk.end
                if chunk.damages and chunk.damages[-1].is_torn_tail and _size_after(file, size) > size:
                    chunk.end = position = chunk.damages.pop().position
                yield chunk
            size = file.size()


@contextmanager
def _opened(path: Path) -> Iterator[File]:
    file = RealFilesystem().open(path)
    try:
        yield file
    finally:
        file.close()


def _size_after(file: File, size: int) -> int:
    if file.size() == size:
        time.sleep(WRITE_SECONDS)
    return file.size()


class FileEvents:
    """The events of a file, one by one; and, once they have all been taken, what was passed over among them."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.count = 0
        self.damages: list[Damage] = []
        self.drained_bytes = BufferDirectory(RealFilesystem(), path.parent).positions.of(path)
        """All before it is stored."""
        self.end = start
        self._found = self._read(path, start)

    def __iter__(self) -> Iterator[Found]:
        return self._found

    def __next__(self) -> Found:
        return next(self._found)

    def _read(self, path: Path, start: int) -> Iterator[Found]:
        for chunk in read_chunks(path, start):
            self.damages += chunk.damages
            for event, (begin, end) in zip(chunk.events, chunk.spans, strict=True):
                self.count += 1
                yield Found(begin, end - begin, event)
            self.end = chunk.end


def events_of(path: Path, start: int = 0) -> FileEvents:
    return FileEvents(path, start)
